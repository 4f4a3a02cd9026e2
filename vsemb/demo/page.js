// Runs once for each place of results: clicks on a picture enlarge it, clicks on "More like this" reach Python.
element.addEventListener("click", event => {
  const more = event.target.closest(".vsemb-more");
  if (more) trigger("select", { key: more.dataset.key });
  const zoom = event.target.closest(".vsemb-zoom");
  if (!zoom) return;
  const dialog = document.createElement("dialog");
  dialog.className = "vsemb-large";
  dialog.setAttribute("aria-label", zoom.getAttribute("aria-label"));
  const close = document.createElement("button");
  close.textContent = "Close";
  const text = zoom.closest("figure").querySelector("figcaption").cloneNode(true);
  text.querySelectorAll("button").forEach(button => button.remove());
  dialog.append(zoom.querySelector("img").cloneNode(), text, close);
  dialog.addEventListener("click", event => {
    if (event.target === dialog || event.target === close) dialog.close();
  });
  dialog.addEventListener("close", () => dialog.remove());
  element.append(dialog);
  dialog.showModal();
});
