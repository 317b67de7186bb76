for (const button of document.querySelectorAll("th button")) {
  button.addEventListener("click", () => {
    const head = button.parentElement, body = head.closest("table").tBodies[0];
    const down = head.getAttribute("aria-sort") === "ascending";
    for (const other of head.parentElement.children) other.removeAttribute("aria-sort");
    head.setAttribute("aria-sort", down ? "descending" : "ascending");
    const key = row => row.cells[head.cellIndex].dataset.value ?? "";
    const numeric = head.classList.contains("number");
    const compare = (a, b) => numeric ? Number(a) - Number(b) : a.localeCompare(b);
    const rows = [...body.rows].sort((a, b) => {
      const x = key(a), y = key(b);
      if (x === "" || y === "") return (x === "") - (y === "");  // missing values last
      return down ? compare(y, x) : compare(x, y);
    });
    body.append(...rows);
  });
}
for (const picture of document.querySelectorAll("button.picture")) {
  picture.addEventListener("click", () => {
    const large = document.createElement("dialog"), close = document.createElement("button");
    const image = picture.firstElementChild.cloneNode();
    close.type = "button";
    close.textContent = "Close";
    close.addEventListener("click", () => large.close());
    image.addEventListener("click", () => large.classList.toggle("whole"));
    large.addEventListener("close", () => large.remove());  // also by the Escape key
    large.append(close, image);
    document.body.append(large);
    large.showModal();
  });
}
