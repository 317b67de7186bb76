const button = document.querySelector("button.picture"), count = document.images.length;
button.click();
const large = document.querySelector("dialog"), image = large.querySelector("img");
const seen = [large.open, image.src === button.firstElementChild.src, image.naturalWidth > 0,
  image.clientWidth >= innerWidth, document.images.length === count + 1];
image.click();
seen.push(large.classList.contains("whole"), image.clientWidth <= innerWidth);
large.querySelector("button").click();
large.addEventListener("close", () => setTimeout(() => {
  seen.push(document.querySelector("dialog") === null, document.images.length === count);
  document.title = [document.title, ...seen].join("|");
}));
