// Runs once for each place of results: clicks and Enter enlarge a picture, arrow keys move over pictures, clicks on
// "More like this" and a text in the address reach Python.
const zooms = () => [...element.querySelectorAll(".vsemb-cards .vsemb-zoom")];
const neighbour = (zoom, key) => {
  const all = zooms(), place = all.indexOf(zoom);
  const top = each => each.getBoundingClientRect().top;
  const columns = all.filter(each => top(each) === top(all[0])).length;
  const step = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -columns, ArrowDown: columns }[key];
  return step && place >= 0 ? all[place + step] : undefined;
};
const enlarge = zoom => {
  const dialog = document.createElement("dialog");
  dialog.className = "vsemb-large";
  dialog.setAttribute("aria-label", zoom.getAttribute("aria-label"));
  const close = document.createElement("button");
  close.textContent = "Close";
  const text = zoom.closest("figure").querySelector("figcaption").cloneNode(true);
  text.querySelectorAll("button").forEach(button => button.remove());
  const image = zoom.querySelector("img").cloneNode();
  image.src = image.src + "?large=true";
  dialog.append(image, text, close);
  dialog.addEventListener("click", event => {
    if (event.target === dialog || event.target === close) dialog.close();
  });
  dialog.addEventListener("keydown", event => {
    const next = neighbour(zoom, event.key);
    if (!next) return;
    event.preventDefault();
    event.stopPropagation();
    dialog.close();
    next.focus();
    enlarge(next);
  });
  dialog.addEventListener("close", () => dialog.remove());
  element.append(dialog);
  dialog.showModal();
};
element.addEventListener("click", event => {
  const more = event.target.closest(".vsemb-more");
  if (more) trigger("select", { key: more.dataset.key });
  const zoom = event.target.closest(".vsemb-zoom");
  if (zoom) enlarge(zoom);
});
element.addEventListener("keydown", event => {
  const next = event.target.matches(".vsemb-zoom") && neighbour(event.target, event.key);
  if (!next) return;
  event.preventDefault();
  next.focus();
});
const q = new URLSearchParams(location.search).get("q");
if (q && element.closest("#sentence-out")) trigger("submit", { q });
