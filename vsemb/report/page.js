/* Shows the queries of the page with search, filters and order, enlarges pictures, and shows the picture of a point of
   the projection. All data is in the page; nothing is requested. */
const STEP = 48;
const GROUPS = [
  ["Found first", "", query => query.known < 2 && query.rank === 1],
  ["Failures", "All words of these queries are known, and other results scored higher than the right one.",
    query => query.known < 2 && query.rank > 1],
  ["Unknown words", "Some words are unknown to the model, so the rank of these queries is not a failure of the model.",
    query => query.known === 2],
  ["No known word", "The model cannot tell these queries apart.", query => query.known === 3],
];
const ORDERS = {
  last: (one, other) => other.rank - one.rank,
  first: (one, other) => one.rank - other.rank,
  text: (one, other) => one.label.localeCompare(other.label),
};
const element = id => document.getElementById(id);
const data = JSON.parse(element("data")?.textContent ?? "null");
const count = number => number.toLocaleString("en");
const make = (tag, attributes, ...inside) => {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  node.append(...inside);
  return node;
};

const sentences = image => data.own[image].map(text => data.texts[text]);
const longest = image => sentences(image).reduce((one, other) => (other.length > one.length ? other : one));
const picture = image =>
  data.pictures.length
    ? make("img", { src: data.pictures[image], alt: longest(image), title: data.keys[image] })
    : make("div", { class: "nothing" }, data.keys[image]);
const frame = image =>
  make("button", { type: "button", class: "frame", "aria-haspopup": "dialog", "data-image": image }, picture(image));
const unknown = text =>
  data.unknown[text]?.length
    ? [make("span", { class: "rank unknown" }, `not known to the model: ${data.unknown[text].join(", ")}`)]
    : [];

const resultsOf = query =>
  query.found.map((number, place) => {
    const right = query.by === "byText" ? data.own[number].includes(query.of) : data.own[query.of].includes(number);
    const rank = place < 5 ? place + 1 : query.rank;
    const mark = make("span", { class: "mark" }, right ? "✓" : "✗",
      make("span", { class: "hidden" }, right ? " right" : " wrong"), ` ${count(rank)}`);
    const score = make("span", { class: "score" }, query.scores[place]);
    const kind = right ? "right" : "wrong";
    return query.by === "byText"
      ? make("li", { class: kind }, frame(number), mark, score)
      : make("li", { class: kind }, mark, make("span", {}, data.texts[number], " ", ...unknown(number)), score);
  });
const CARDS = {
  byText: query =>
    make("div", { class: "query by-text" },
      make("p", {}, make("q", {}, query.label), make("span", { class: "rank" }, `rank ${count(query.rank)}`),
        ...unknown(query.of)),
      make("ol", { class: "found" }, ...resultsOf(query))),
  byImage: query =>
    make("div", { class: "query by-image asked" },
      make("div", {}, frame(query.of), make("span", { class: "rank" }, `rank ${count(query.rank)}`)),
      make("ol", { class: "texts" }, ...resultsOf(query))),
};

const showGroup = (title, note, queries, shown) => {
  const cards = make("div", { class: "pairs" });
  const more = make("button", { type: "button", class: "more" });
  const add = number => {
    const next = queries.slice(cards.children.length, cards.children.length + number);
    cards.append(...next.map(query => CARDS[query.by](query)));
    const left = queries.length - cards.children.length;
    more.textContent = `Show ${Math.min(STEP, left)} more of ${count(left)}`;
    more.hidden = !left;
  };
  more.addEventListener("click", () => {
    const first = cards.children.length;
    add(STEP);
    cards.children[first].querySelector("button")?.focus();
  });
  add(shown);
  const heading = make("h3", {}, `${title} `, make("span", { class: "rank" }, count(queries.length)));
  return make("div", { class: "group" }, heading, make("p", { class: "note" }, note), cards, more);
};

const showQueries = form => {
  const owners = new Map(data.own.flatMap((texts, image) => texts.map(text => [text, image])));
  const all = ["byText", "byImage"].flatMap(by =>
    data[by].map(([of, rank, known, found, scores]) => {
      const image = by === "byText" ? owners.get(of) : of;
      const label = by === "byText" ? data.texts[of] : data.keys[of];
      const text = (by === "byText" ? label : [label, ...sentences(of)].join(" ")).toLowerCase();
      return { by, of, rank, known, found, scores, label, text, class: data.classes[image] };
    }));
  const remedies = element("groups").dataset.remedies;
  const show = () => {
    const wanted = Object.fromEntries(new FormData(form));
    const words = wanted.text.toLowerCase().split(/\s+/);
    const [low, high] = wanted.rank.split("-").map(Number);
    const ofDirection = all.filter(query => query.by === wanted.by);
    const queries = ofDirection.filter(query =>
      query.rank >= low && query.rank <= (high || Infinity)
      && (!wanted.known || query.known === Number(wanted.known))
      && (!wanted.class || query.class === wanted.class)
      && words.every(word => query.text.includes(word)));
    queries.sort(ORDERS[wanted.order]);
    element("count").textContent = `${count(queries.length)} of ${count(ofDirection.length)} queries`;
    element("groups").replaceChildren(...GROUPS.flatMap(([title, note, fits]) => {
      const own = queries.filter(fits);
      const help = own.some(query => query.known === 2) && remedies ? ` What a training can change: ${remedies}.` : "";
      return own.length ? showGroup(title, note + help, own, Number(form.dataset.shown)) : [];
    }));
  };
  form.addEventListener("input", show);
  form.addEventListener("submit", event => event.preventDefault());
  show();
};

const placeOf = point => [parseFloat(point.style.left), parseFloat(point.style.top)];
const nearest = (point, [right, down]) => {
  const [x, y] = placeOf(point);
  const far = other => {
    const [otherX, otherY] = placeOf(other);
    const along = (otherX - x) * right + (otherY - y) * down;
    return along > 0 ? along + 2 * Math.abs((otherX - x) * down + (otherY - y) * right) : Infinity;
  };
  const others = [...point.parentElement.querySelectorAll(".point")];
  const best = others.reduce((one, other) => (far(other) < far(one) ? other : one));
  return far(best) < Infinity ? best : undefined;
};
const WAYS = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };
const neighbour = (source, key) => {
  const way = WAYS[key];
  if (!way || !source) return undefined;
  if (source.matches(".point")) return nearest(source, way);
  const frames = [...source.closest("section").querySelectorAll("button.frame")];
  return way[0] ? frames[frames.indexOf(source) + way[0]] : undefined;
};

const dialog = make("dialog", { class: "large", "aria-label": "Enlarged picture" });
let enlarged;
const enlarge = source => {
  const image = source.dataset.image;
  const shown = image ? picture(image) : source.querySelector("img").cloneNode();
  const texts = image ? sentences(image) : [shown.alt];
  const lines = make("ul", {}, ...texts.map(text => make("li", {}, text)));
  const key = make("p", { class: "file" }, shown.title || shown.textContent);
  const close = make("button", { type: "button" }, "Close");
  dialog.replaceChildren(shown, lines, key, close);
  enlarged = source;
  if (!dialog.open) dialog.showModal();
};
document.body.append(dialog);
dialog.addEventListener("click", event => {
  if (event.target === dialog || event.target.matches("button")) dialog.close();
});
dialog.addEventListener("close", () => enlarged.focus());
document.addEventListener("click", event => {
  const source = event.target.closest("button.frame, .point");
  if (source) enlarge(source);
});
document.addEventListener("keydown", event => {
  const next = neighbour(dialog.open ? enlarged : event.target.closest("button.frame, .point"), event.key);
  if (!next) return;
  event.preventDefault();
  if (dialog.open) enlarge(next);
  else next.focus();
});

const showPoints = plane => {
  const points = [...plane.querySelectorAll(".point")], tip = plane.querySelector(".tip");
  const show = event => {
    const point = event.target.closest(".point");
    tip.hidden = !point;
    if (!point) return;
    const [x, y] = placeOf(point);
    const near = at => `calc(${at}% + 12px)`;
    Object.assign(tip.style, { left: "auto", right: "auto", top: "auto", bottom: "auto" });
    tip.style[x < 50 ? "left" : "right"] = near(x < 50 ? x : 100 - x);
    tip.style[y < 50 ? "top" : "bottom"] = near(y < 50 ? y : 100 - y);
    tip.replaceChildren(picture(point.dataset.image), make("figcaption", {}, longest(point.dataset.image)));
  };
  const hide = () => { tip.hidden = true; };
  points.forEach((point, place) => {
    point.setAttribute("aria-label", longest(point.dataset.image));
    point.tabIndex = place ? -1 : 0;
  });
  plane.addEventListener("pointerover", show);
  plane.addEventListener("pointerleave", hide);
  plane.addEventListener("focusin", event => {
    for (const point of points) point.tabIndex = point === event.target ? 0 : -1;
    show(event);
  });
  plane.addEventListener("focusout", hide);
  plane.addEventListener("keydown", event => { if (event.key === "Escape") hide(); });
};

if (data) showQueries(document.querySelector(".filters"));
document.querySelectorAll(".plane").forEach(showPoints);
