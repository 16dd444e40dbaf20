// The page: rows come by server-sent events, details of the chosen run by its own stream.

import { bytes, clock, devicesOf, isFinal, number, percent, polyline, range, reason, shortName, sortedRuns, took, where } from "./format.js";

const runs = new Map();
const workers = new Map();
let chosen = null;
let detailFeed = null;
let token = null;

const $ = (id) => document.getElementById(id);

function element(name, className = "", ...children) {
  const made = document.createElement(name);
  made.className = className;
  made.append(...children);
  return made;
}

const pill = (status) => element("span", `pill ${status}`, status);

// ---------------------------------------------------------------- drawing once a frame

const waiting = new Map();

function schedule(key, draw) {
  if (waiting.size === 0) {
    requestAnimationFrame(() => {
      const draws = [...waiting.values()];
      waiting.clear();
      for (const one of draws) one();
    });
  }
  waiting.set(key, draw);
}

/** Rows by key: one that reads the same stays the same element, so that focus and clicks survive. */
function patchRows(body, items, { key, seen, make }) {
  const before = new Map([...body.rows].map((row) => [row.dataset.key, row]));
  const after = items.map((item) => {
    const id = key(item);
    const text = seen(item);
    const old = before.get(id);
    if (old?.dataset.seen === text) return old;
    const row = make(item);
    row.dataset.key = id;
    row.dataset.seen = text;
    return row;
  });
  if (after.length !== body.rows.length || after.some((row, place) => body.rows[place] !== row)) {
    const focused = document.activeElement?.closest?.("tr")?.dataset.key;
    body.replaceChildren(...after);
    if (focused) after.find((row) => row.dataset.key === focused)?.focus();
  }
}

// ---------------------------------------------------------------- calls that change something

function complain(text) {
  $("problem").textContent = text;
}

async function call(method, path) {
  try {
    token ??= (await (await fetch("/api/auth/bootstrap")).json()).token;
    const answer = await fetch(path, { method, headers: { "X-CodefyUI-Token": token } });
    if (answer.status === 403) token = null;
    complain(answer.ok ? "" : (await answer.json()).detail);
  } catch {
    complain("The server can't be reached. Try again when it is back.");
  }
}

function stopButton(run) {
  const button = element("button", "", run.stop_requested ? "Stopping" : "Stop");
  button.disabled = Boolean(run.stop_requested);
  button.addEventListener("click", (event) => {
    event.stopPropagation();
    button.disabled = true;
    call("POST", `/api/runs/${run.id}/cancel`).finally(() => (button.disabled = false));
  });
  return button;
}

// ---------------------------------------------------------------- tables

function runRow(run) {
  const metrics = run.final_metrics ?? {};
  const row = element(
    "tr",
    "",
    element("td", "", pill(run.status)),
    element("td", "name", run.name || run.id.slice(0, 12)),
    element("td", "wide", where(run)),
    element("td", "num wide", number(metrics.train_loss)),
    element("td", "num", percent(metrics.val_accuracy)),
    element("td", "wide", clock(run.started_at)),
    element("td", "num took wide", took(run)),
    element("td", "", isFinal(run.status) ? "" : stopButton(run)),
  );
  row.dataset.run = run.id;
  row.tabIndex = 0;
  row.setAttribute("aria-selected", String(run.id === chosen));
  row.addEventListener("click", () => choose(run.id));
  row.addEventListener("keydown", (event) => event.key === "Enter" && event.target === row && choose(run.id));
  return row;
}

function drawRuns() {
  patchRows($("runs").tBodies[0], sortedRuns(runs.values()), {
    key: (run) => run.id,
    seen: (run) => JSON.stringify([run, run.id === chosen]),
    make: runRow,
  });
  $("runs").hidden = runs.size === 0;
  $("no-runs").hidden = runs.size > 0;
}

function drawTimes() {
  for (const row of $("runs").tBodies[0].rows) {
    const run = runs.get(row.dataset.key);
    if (run && !isFinal(run.status)) row.querySelector(".took").textContent = took(run);
  }
}

function workerRow(worker) {
  const line = element("td", "wide", worker.same_host ? "this machine" : (worker.address ?? ""));
  if (worker.plain_http) {
    const badge = element("span", "badge", "Plain HTTP");
    badge.title = "Credentials and secrets cross the network unencrypted.";
    line.append(" ", badge);
  }
  return element(
    "tr",
    "",
    element("td", "", pill(worker.status)),
    element("td", "name", worker.name),
    element("td", "", devicesOf(worker)),
    element("td", "num", String(worker.running ?? 0)),
    element("td", "num", String(worker.queued ?? 0)),
    element("td", "wide", worker.version ?? ""),
    line,
  );
}

function drawWorkers() {
  patchRows($("workers").tBodies[0], [...workers.values()].sort((a, b) => a.name.localeCompare(b.name)), {
    key: (worker) => worker.id,
    seen: (worker) => JSON.stringify({ ...worker, last_seen: null }),
    make: workerRow,
  });
  $("workers").hidden = workers.size === 0;
  $("no-workers").hidden = workers.size > 0;
}

// ---------------------------------------------------------------- the chosen run

function choose(id) {
  chosen = id;
  detailFeed?.close();
  $("detail").hidden = false;
  const series = new Map();
  const lines = [];
  const feed = new EventSource(`/api/runs/${id}/events?cursor=0`);
  detailFeed = feed;
  const on = (type, act) => feed.addEventListener(type, (event) => chosen === id && act(JSON.parse(event.data)));
  on("metric", ({ payload }) => {
    for (const point of payload.points) {
      if (!series.has(point.name)) series.set(point.name, []);
      series.get(point.name).push(point);
    }
    schedule("charts", () => drawCharts(series));
  });
  on("log", ({ payload }) => {
    lines.push(...payload.lines);
    schedule("log", () => drawLog(lines));
  });
  on("artifact", () => schedule("artifacts", () => drawArtifacts(id)));
  on("closed", () => {
    feed.close();
    drawArtifacts(id);
  });
  drawCharts(series);
  drawLog(lines);
  $("artifacts").replaceChildren();
  drawArtifacts(id);
  drawDetail();
  drawRuns();
}

function drawDetail() {
  const run = runs.get(chosen);
  if (!run) return;
  $("detail-title").replaceChildren(run.name || run.id, " ", pill(run.status));
  $("detail-reason").textContent = reason(run);
}

function chart(name, points) {
  const svg = "http://www.w3.org/2000/svg";
  const last = points.at(-1);
  const figure = element("figure", "chart");
  figure.append(element("figcaption", "", name, element("b", "", number(last.value ?? last.special))));
  const text = polyline(points);
  if (!text) return figure;
  const box = document.createElementNS(svg, "svg");
  box.setAttribute("viewBox", "0 0 100 40");
  box.setAttribute("preserveAspectRatio", "none");
  box.setAttribute("role", "img");
  box.setAttribute("aria-label", `${name} over ${points.length} points`);
  const area = document.createElementNS(svg, "polygon");
  area.setAttribute("points", `0,40 ${text} 100,40`);
  const line = document.createElementNS(svg, "polyline");
  line.setAttribute("points", text);
  box.append(area, line);
  const [low, high] = range(points);
  figure.append(box, element("div", "scale", `${number(low)} to ${number(high)}`, element("span", "", `${points.length} points`)));
  return figure;
}

function drawCharts(series) {
  $("charts").replaceChildren(...[...series].map(([name, points]) => chart(name, points)));
  $("no-charts").hidden = series.size > 0;
}

function drawLog(lines) {
  const log = $("log");
  const atEnd = log.scrollHeight - log.scrollTop - log.clientHeight < 20;
  log.textContent = lines.slice(-2000).join("\n");
  if (atEnd) log.scrollTop = log.scrollHeight;
}

function artifactItem(id, row) {
  const name = shortName(row.name, id);
  const here = row.state === "stored" && row.size_bytes !== null;
  const title = here ? element("a", "", name) : element("span", "", name);
  title.title = row.path ?? row.name;
  if (here) title.href = `/api/runs/${id}/artifacts/${encodeURIComponent(row.id)}/download`;
  const facts = [row.kind, bytes(row.size_bytes), row.state === "stored" ? "" : row.state.replace("_", " ")];
  return element("li", "", title, element("span", "sub", facts.filter(Boolean).join(" · ")));
}

async function drawArtifacts(id) {
  const answer = await fetch(`/api/runs/${id}/artifacts`).catch(() => null);
  if (!answer?.ok || chosen !== id) return;
  const rows = await answer.json();
  if (chosen !== id) return;
  $("artifacts").replaceChildren(...rows.map((row) => artifactItem(id, row)));
  $("no-artifacts").hidden = rows.length > 0;
}

// ---------------------------------------------------------------- the server

function follow() {
  const feed = new EventSource("/api/stream?topics=runs,workers");
  feed.addEventListener("open", () => {
    runs.clear(); // the full set follows, after each reconnect, too
    workers.clear();
    token = null; // a server that was started anew has another one
    schedule("runs", drawRuns);
    schedule("workers", drawWorkers);
    health();
  });
  feed.addEventListener("run", (event) => {
    const row = JSON.parse(event.data);
    if (row.deleted) runs.delete(row.id);
    else runs.set(row.id, row);
    schedule("runs", drawRuns);
    if (row.id === chosen) schedule("detail", drawDetail);
  });
  feed.addEventListener("worker", (event) => {
    const row = JSON.parse(event.data);
    if (row.removed) workers.delete(row.id);
    else workers.set(row.id, row);
    schedule("workers", drawWorkers);
  });
  feed.addEventListener("error", () => {
    say("reconnecting", "stopping");
    if (feed.readyState === EventSource.CLOSED) setTimeout(follow, 2000); // it was answered, but not by a feed
  });
}

function say(text, className) {
  $("health").textContent = text;
  $("health").className = `health ${className}`;
}

async function health() {
  try {
    const found = await (await fetch("/api/health")).json();
    const waits = found.waiting_for.length ? `: waiting for ${found.waiting_for.join(", ")}` : "";
    say(`${found.status}${waits} · version ${found.version} · ${found.nodes_loaded} node types`, found.status);
    if (found.status === "starting") setTimeout(health, 1000);
  } catch {
    say("not reachable", "stopping");
  }
}

setInterval(drawTimes, 1000);
drawRuns();
drawWorkers();
follow();
