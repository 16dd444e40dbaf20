// The page: rows come by server-sent events, details of the chosen run by its own stream.

import { bytes, clock, devicesOf, isFinal, number, percent, polyline, reason, sortedRuns, took, where } from "./format.js";

const runs = new Map();
const workers = new Map();
let chosen = null;
let detailFeed = null;
let token = null;

const $ = (id) => document.getElementById(id);

function cell(row, text, className = "") {
  const td = row.insertCell();
  td.className = className;
  td.append(text);
  return td;
}

function pill(status) {
  const span = document.createElement("span");
  span.className = `pill ${status}`;
  span.textContent = status;
  return span;
}

async function call(method, path) {
  token ??= (await (await fetch("/api/auth/bootstrap")).json()).token;
  const answer = await fetch(path, { method, headers: { "X-CodefyUI-Token": token } });
  if (answer.status === 403) token = null;
  if (!answer.ok) alert((await answer.json()).detail);
}

function stopButton(run) {
  const button = document.createElement("button");
  button.textContent = run.stop_requested ? "Stopping" : "Stop";
  button.disabled = Boolean(run.stop_requested);
  button.addEventListener("click", (event) => {
    event.stopPropagation();
    call("POST", `/api/runs/${run.id}/cancel`);
  });
  return button;
}

function drawRuns() {
  const body = document.createElement("tbody");
  for (const run of sortedRuns(runs.values())) {
    const row = body.insertRow();
    row.dataset.run = run.id;
    row.tabIndex = 0;
    row.setAttribute("aria-selected", String(run.id === chosen));
    row.addEventListener("click", () => choose(run.id));
    row.addEventListener("keydown", (event) => event.key === "Enter" && choose(run.id));
    cell(row, pill(run.status));
    cell(row, run.name || run.id.slice(0, 12));
    cell(row, where(run));
    const metrics = run.final_metrics ?? {};
    cell(row, number(metrics.train_loss), "num");
    cell(row, percent(metrics.val_accuracy), "num");
    cell(row, clock(run.started_at));
    cell(row, took(run), "num took");
    cell(row, isFinal(run.status) ? "" : stopButton(run));
  }
  $("runs").tBodies[0].replaceWith(body);
  $("runs").hidden = runs.size === 0;
  $("no-runs").hidden = runs.size > 0;
}

function drawWorkers() {
  const body = document.createElement("tbody");
  for (const worker of [...workers.values()].sort((a, b) => a.name.localeCompare(b.name))) {
    const row = body.insertRow();
    cell(row, pill(worker.status));
    cell(row, worker.name);
    cell(row, devicesOf(worker));
    cell(row, String(worker.running ?? 0), "num");
    cell(row, String(worker.queued ?? 0), "num");
    cell(row, worker.version ?? "");
    const line = cell(row, worker.same_host ? "this machine" : (worker.address ?? ""));
    if (worker.plain_http) {
      const badge = document.createElement("span");
      badge.className = "badge";
      badge.textContent = "Plain HTTP";
      badge.title = "Credentials and secrets cross the network unencrypted.";
      line.append(" ", badge);
    }
  }
  $("workers").tBodies[0].replaceWith(body);
  $("workers").hidden = workers.size === 0;
  $("no-workers").hidden = workers.size > 0;
}

function choose(id) {
  chosen = id;
  detailFeed?.close();
  $("detail").hidden = false;
  const series = new Map();
  const lines = [];
  const feed = new EventSource(`/api/runs/${id}/events?cursor=0`);
  detailFeed = feed;
  feed.addEventListener("metric", (event) => {
    for (const point of JSON.parse(event.data).payload.points) {
      if (!series.has(point.name)) series.set(point.name, []);
      series.get(point.name).push(point);
    }
    schedule(() => chosen === id && drawCharts(series));
  });
  feed.addEventListener("log", (event) => {
    lines.push(...JSON.parse(event.data).payload.lines);
    schedule(() => chosen === id && drawLog(lines));
  });
  feed.addEventListener("artifact", () => chosen === id && drawArtifacts(id));
  feed.addEventListener("closed", () => {
    feed.close();
    drawArtifacts(id);
  });
  drawCharts(series);
  drawLog(lines);
  drawArtifacts(id);
  drawDetail();
  drawRuns();
}

function drawDetail() {
  const run = runs.get(chosen);
  if (!run) return;
  $("detail-title").textContent = `${run.name || run.id} · ${run.status}`;
  $("detail-reason").textContent = reason(run);
}

function drawCharts(series) {
  const svg = "http://www.w3.org/2000/svg";
  const figures = [...series].map(([name, points]) => {
    const figure = document.createElement("figure");
    figure.className = "chart";
    const caption = document.createElement("figcaption");
    const value = document.createElement("b");
    const last = points.at(-1);
    value.textContent = number(last.value ?? last.special);
    caption.append(name, value);
    const box = document.createElementNS(svg, "svg");
    box.setAttribute("viewBox", "0 0 100 40");
    box.setAttribute("preserveAspectRatio", "none");
    box.setAttribute("role", "img");
    box.setAttribute("aria-label", `${name} over ${points.length} points`);
    const line = document.createElementNS(svg, "polyline");
    line.setAttribute("points", polyline(points));
    box.append(line);
    figure.append(caption, box);
    return figure;
  });
  $("charts").replaceChildren(...figures);
}

function drawLog(lines) {
  const log = $("log");
  const atEnd = log.scrollHeight - log.scrollTop - log.clientHeight < 20;
  log.textContent = lines.slice(-2000).join("\n");
  if (atEnd) log.scrollTop = log.scrollHeight;
}

async function drawArtifacts(id) {
  const rows = await (await fetch(`/api/runs/${id}/artifacts`)).json();
  if (chosen !== id) return;
  const items = rows.map((row) => {
    const item = document.createElement("li");
    const link = document.createElement("a");
    link.href = `/api/runs/${id}/artifacts/${encodeURIComponent(row.id)}/download`;
    link.textContent = row.name;
    item.append(link, ` ${row.kind} · ${bytes(row.size_bytes)}${row.state === "stored" ? "" : ` · ${row.state}`}`);
    return item;
  });
  $("artifacts").replaceChildren(...items);
}

const waiting = new Set();
function schedule(draw) {
  if (waiting.size === 0) requestAnimationFrame(() => {
    const draws = [...waiting];
    waiting.clear();
    for (const one of draws) one();
  });
  waiting.add(draw);
}

function follow() {
  const feed = new EventSource("/api/stream?topics=runs,workers");
  feed.addEventListener("open", health);
  feed.addEventListener("run", (event) => {
    const row = JSON.parse(event.data);
    if (row.deleted) runs.delete(row.id);
    else runs.set(row.id, row);
    schedule(drawRuns);
    if (row.id === chosen) schedule(drawDetail);
  });
  feed.addEventListener("worker", (event) => {
    const row = JSON.parse(event.data);
    if (row.removed) workers.delete(row.id);
    else workers.set(row.id, row);
    schedule(drawWorkers);
  });
  feed.addEventListener("error", () => say("reconnecting", "stopping"));
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

setInterval(() => [...runs.values()].some((run) => !isFinal(run.status)) && drawRuns(), 1000);
drawRuns();
drawWorkers();
follow();
