"""From a sweep's folder to tables, figures and a report; nothing here trains or solves."""
