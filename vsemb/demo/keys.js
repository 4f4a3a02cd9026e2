// Runs once, with the heading: the address of the page, and the keys "/" and "arrow down" for the box of sentences.
window.vsembAddress = (text, values) => {
  const address = new URL(location.href);
  text ? address.searchParams.set("q", text) : address.searchParams.delete("q");
  history.replaceState(history.state, "", address);
  return values;
};
const box = () => document.querySelector("#sentence textarea, #sentence input");
document.addEventListener("keydown", event => {
  if (event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]")) return;
  const typing = event.target.matches("input, textarea, select, [contenteditable]");
  if (event.key === "/" && !typing && box()) {
    event.preventDefault();
    if (!box().offsetParent) document.querySelector("[role=tab]").click();
    requestAnimationFrame(() => { box().focus(); box().select(); });
  }
  const first = document.querySelector("#sentence-out .vsemb-cards .vsemb-zoom");
  if (event.key === "ArrowDown" && event.target === box() && first) {
    event.preventDefault();
    first.focus();
  }
});
