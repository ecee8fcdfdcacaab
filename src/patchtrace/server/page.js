// The page around the viewer: takes pictures in, shows how far they are, and mounts the viewer with the first answer.
// app.py puts viewer/js/text.js in front of it.

const byId = (id) => document.getElementById(id);
const limit = Number(document.body.dataset.limit);
const finished = (query) => ["done", "failed", "cancelled"].includes(query.state);

let queries = [];          // as the server reports them, the newest first
let chosen = null;         // the id of the query that is shown
let shown = null;          // the id of the query whose result is mounted
let latest = "";           // the answer that is shown or on its way: the id and the number of answers
let live = false;          // whether that was mounted before its end: then its progress stays, so that nothing moves
let viewer = null;         // what is mounted there
let source = null;         // the one stream that is open: browsers allow few connections to a server
let watched = null;
let reported = 0;          // when the server last reported the seconds
const announced = new Map();  // the last state of each query that was announced

// -- talking to the server ---------------------------------------------------------------------------

async function call(path, options) {
  let answer;
  try {
    answer = await fetch(path, options);
  } catch {
    throw new Error("The server does not answer. Is it still running?");
  }
  if (answer.status === 204) return null;
  const data = await answer.json().catch(() => null);
  if (answer.status === 401) throw new Error("This page has no key any more. Open the link in the terminal again.");
  if (!answer.ok) throw new Error(data?.error?.message ?? `The server answered ${answer.status}.`);
  return data;
}

function complain(text) {
  byId("message").textContent = text;
  byId("message").hidden = !text;
}

async function attempt(work) {
  try {
    return await work();
  } catch (error) {
    complain(error.message);
    return null;
  }
}

async function submit(files) {
  complain("");
  for (const file of files) {
    if (file.size > limit) {
      complain(`${file.name} is too large: a file may have ${limit / 1e6} MB.`);
      continue;
    }
    const path = `/api/queries?name=${encodeURIComponent(file.name.slice(0, 200))}`;
    const headers = { "Content-Type": "application/octet-stream" };
    const query = await attempt(() => call(path, { method: "POST", headers, body: file }));
    if (query) choose(query.id);
    await refresh();
  }
}

async function refresh() {
  const data = await attempt(() => call("/api/queries"));
  if (!data) return;
  queries = data.queries;
  reported = performance.now();
  if (!queries.some((query) => query.id === chosen)) chosen = queries[0]?.id ?? null;
  render();
  watch();
}

async function remove(id) {
  await attempt(() => call(`/api/queries/${id}`, { method: "DELETE" }));
  await refresh();
}

// One query is watched: the chosen one, or else the one whose turn it is.
function watch() {
  const open = queries.filter((query) => !finished(query));
  const target = document.hidden ? null
    : open.find((query) => query.id === chosen) ?? open.find((query) => query.state === "running") ?? open.at(-1);
  if (watched === (target?.id ?? null)) return;
  source?.close();
  watched = target?.id ?? null;
  if (!target) return;
  const stream = source = new EventSource(`/api/queries/${target.id}/events`);
  stream.addEventListener("state", (event) => {
    const now = JSON.parse(event.data);
    const before = queries.find((query) => query.id === now.id);
    queries = queries.map((query) => (query.id === now.id ? now : query));
    reported = performance.now();
    if (finished(now)) {
      stream.close();
      watched = null;
      refresh();
    } else if (before && before.state !== now.state) {
      refresh();
    } else {
      render();
    }
  });
  stream.addEventListener("error", () => {
    if (stream.readyState !== EventSource.CLOSED) return;  // else the browser comes back by itself
    if (source === stream) watched = null;
    setTimeout(refresh, 3000);
  });
}

// -- showing -----------------------------------------------------------------------------------------

function time(seconds) {
  const whole = Math.max(0, Math.round(seconds));
  return whole < 60 ? `${whole} s` : `${Math.floor(whole / 60)} min ${whole % 60} s`;
}

function words(query) {
  switch (query.state) {
    case "waiting": return query.position === 1 ? "next in the queue" : `number ${query.position} in the queue`;
    case "running": return query.stopping ? "stopping" : query.total ? `comparing, ${part(query)} %` : "comparing";
    case "done": return `done in ${time(query.seconds)}`;
    case "failed": return "failed";
    default: return "cancelled";
  }
}

const part = (query) => Math.floor((100 * Math.min(query.done, query.total)) / query.total);

function choose(id) {
  chosen = id;
  render();
  watch();
}

function render() {
  renderHistory();
  renderWork();
  announce();
}

function renderHistory() {
  const list = byId("history");
  const rows = new Map([...list.children].map((row) => [row.dataset.id, row]));
  byId("history-empty").hidden = queries.length > 0;
  // rows are kept and changed, so that the one that has the focus does not lose it
  queries.forEach((query, place) => {
    let row = rows.get(query.id);
    rows.delete(query.id);
    if (!row) row = newRow(query);
    if (list.children[place] !== row) list.insertBefore(row, list.children[place] ?? null);
    row.classList.toggle("site-chosen", query.id === chosen);
    row.querySelector(".site-pick").setAttribute("aria-current", query.id === chosen ? "true" : "false");
    const state = row.querySelector(".site-state");
    if (state.textContent !== words(query)) state.textContent = words(query);
    const button = row.querySelector(".site-drop-one");
    const verb = finished(query) ? "Remove" : "Cancel";
    if (button.textContent !== verb) button.textContent = verb;
    button.setAttribute("aria-label", `${verb} ${query.name}`);
    button.disabled = query.stopping;
  });
  for (const row of rows.values()) {
    const focused = row.contains(document.activeElement);
    row.remove();
    if (focused) byId("file").focus();
  }
}

function newRow(query) {
  const text = make("span", {},
    make("span", { className: "site-name", textContent: query.name, title: query.name }),
    make("span", { className: "site-state" }));
  const picture = make("img", { src: query.thumbnail, alt: "", width: 48, height: 48 });
  const pick = make("button", { type: "button", className: "site-pick", onclick: () => choose(query.id) }, picture, text);
  const button = make("button", { type: "button", className: "site-button site-drop-one", onclick: () => remove(query.id) });
  const row = make("li", {}, pick, button);
  row.dataset.id = query.id;
  return row;
}

function renderWork() {
  const query = queries.find((one) => one.id === chosen);
  byId("welcome").hidden = Boolean(query);
  if (shown && (!query?.answers || shown !== query.id)) unmount();
  if (query?.answers) show(query);
  byId("work").hidden = !query || (query.state === "done" && !live);
  byId("work").classList.toggle("site-slim", Boolean(query?.answers));
  if (!query) return;
  byId("work-title").textContent = query.name;
  if (byId("work-picture").getAttribute("src") !== query.thumbnail) byId("work-picture").src = query.thumbnail;
  byId("work-state").textContent = query.error ? query.error.message : words(query);
  const bar = byId("work-progress");
  bar.hidden = query.state !== "running";
  if (query.total) {
    bar.max = query.total;
    bar.value = query.done;
  } else {
    bar.removeAttribute("value");
  }
  byId("work-cancel").hidden = finished(query);
  byId("work-cancel").disabled = query.stopping;
  renderClock();
}

function renderClock() {
  const query = queries.find((one) => one.id === chosen);
  if (!query || finished(query)) {
    byId("work-detail").textContent = "";
    return;
  }
  const facts = [];
  if (query.state === "running") {
    const seconds = query.seconds + (performance.now() - reported) / 1000;
    facts.push(time(seconds));
    if (query.done && seconds > 2) facts.push(`about ${time((query.seconds * (query.total - query.done)) / query.done)} left`);
  }
  if (query.remark) facts.push(query.remark);
  byId("work-detail").textContent = facts.join(", ");
}

// Only changes of state are read out, not every step.
function announce() {
  for (const query of queries) {
    const last = announced.get(query.id), first = query.state === "running" && query.answers > 0;
    const now = first ? "first answer" : query.state;
    announced.set(query.id, now);
    if (last === now || (last === undefined && finished(query))) continue;
    const state = first ? "first answer, still being computed" : query.state === "done" ? "done"
      : query.state === "failed" ? `failed: ${query.error?.message}` : words(query);
    byId("status").textContent = `${query.name}: ${state}`;
  }
}

// Each answer takes the place of the one before; what is mounted stays.
async function show(query) {
  const answer = `${query.id} ${query.answers}`, done = query.state === "done";
  if (latest === answer) return;
  if (!shown) live = !done;
  [latest, shown] = [answer, query.id];
  const fetched = call(`/api/queries/${query.id}/view`);
  const view = await (done ? attempt(() => fetched) : fetched.catch(() => null));  // it may be cancelled meanwhile
  if (!view || latest !== answer) return;
  if (!viewer?.update?.(view)) mount(view);
}

function mount(view) {
  viewer?.destroy?.();
  viewer = null;
  const place = make("div");
  byId("result").replaceChildren(place);
  try {
    viewer = typeof Viewer === "undefined" ? null : Viewer.mount(place, view);
  } catch (error) {
    complain(`The viewer cannot show this result (${error.message}). Here is the ranking.`);
  }
  if (!viewer) place.replaceChildren(table(view));
}

function unmount() {
  viewer?.destroy?.();
  viewer = shown = null;
  live = false;
  latest = "";
  byId("result").replaceChildren();
}

// What is shown where the viewer is not installed, or cannot show it.
function table(view) {
  const head = make("tr", {}, ...["rank", "image", "share", "id"].map((name) => make("th", { scope: "col", textContent: name })));
  const rows = view.images.map((image) => make("tr", {},
    make("td", { textContent: image.rank }),
    make("td", {}, make("img", { src: image.pixels, alt: "" })),
    make("td", { textContent: percent(image.share) }),
    make("td", { textContent: image.id })));
  return make("table", { className: "site-table" },
    make("caption", { textContent: `${view.query.id} resembles most` }),
    make("thead", {}, head), make("tbody", {}, ...rows));
}

// -- taking pictures in ------------------------------------------------------------------------------

const file = byId("file");
file.addEventListener("change", async () => {
  const files = [...file.files];
  file.value = "";  // so that the same file can be chosen again
  await submit(files);
});
// a picture that is dropped beside the zone would else replace the page
for (const kind of ["dragover", "drop", "dragleave"]) {
  window.addEventListener(kind, (event) => {
    const files = [...(event.dataTransfer?.types ?? [])].includes("Files");
    byId("drop").classList.toggle("site-over", kind === "dragover" && files);
    if (kind === "dragleave" || !files) return;
    event.preventDefault();
    if (kind === "drop") submit([...event.dataTransfer.files]);
  });
}
document.addEventListener("paste", (event) => {
  const files = [...(event.clipboardData?.files ?? [])];
  if (files.length) submit(files);
});
byId("work-cancel").addEventListener("click", () => remove(chosen));
document.addEventListener("visibilitychange", () => (document.hidden ? watch() : refresh()));
setInterval(renderClock, 1000);
setInterval(() => queries.some((query) => !finished(query)) && !document.hidden && refresh(), 5000);
refresh();
