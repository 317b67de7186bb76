// A figure opens at full size by a click, a touch or the keyboard; Escape closes it.
document.addEventListener("DOMContentLoaded", () => {
  const large = document.createElement("dialog");
  large.className = "enlarged";
  large.innerHTML = '<button type="button">Close</button><img alt="">';
  document.body.append(large);
  const [close, shown] = large.children;
  large.addEventListener("click", () => large.close());
  close.addEventListener("click", () => large.close());
  for (const picture of document.querySelectorAll("article img")) {
    if (picture.closest("a")) continue;
    const button = document.createElement("button");
    button.type = "button";
    button.className = "enlarge";
    button.setAttribute("aria-label", `Enlarge: ${picture.alt}`);
    picture.replaceWith(button);
    button.append(picture);
    button.addEventListener("click", () => {
      shown.src = picture.src;
      shown.alt = picture.alt;
      large.showModal();
      close.focus();
    });
  }
});

// What scrolls by itself can be reached by the keyboard; headings of the menu have a level, and the
// two parts beside a page have names.
addEventListener("load", () => {
  for (const part of document.querySelectorAll("article pre, article table, article .table-wrapper")) {
    if (part.scrollWidth > part.clientWidth) part.tabIndex = 0;
  }
  for (const caption of document.querySelectorAll("p.caption[role=heading]")) {
    caption.setAttribute("aria-level", "2");
  }
  document.querySelector("aside.sidebar-drawer")?.setAttribute("aria-label", "Site");
  document.querySelector("aside.toc-drawer")?.setAttribute("aria-label", "Contents of this page");
});
