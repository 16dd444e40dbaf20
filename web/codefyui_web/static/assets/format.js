// Pure: rows of the API into what a person reads. No document, no network.

const FINAL = new Set(["succeeded", "failed", "cancelled", "interrupted"]);

export const isFinal = (status) => FINAL.has(status);

/** Newest first: ids are ordered by time. */
export function sortedRuns(runs) {
  return [...runs].sort((a, b) => (a.created_at < b.created_at ? 1 : a.created_at > b.created_at ? -1 : 0));
}

export function where(run) {
  if (run.worker) return run.devices?.length ? `${run.worker} · ${run.devices.join(", ")}` : run.worker;
  const target = run.target ?? {};
  if (target.worker) return target.worker;
  if (target.any) return "any worker";
  if (target.pool) return "one-shot pool";
  return "this server";
}

export function number(value, digits = 4) {
  if (value === null || value === undefined) return "";
  if (typeof value !== "number") return String(value);
  return value !== 0 && Math.abs(value) < 10 ** -digits ? value.toExponential(2) : value.toFixed(digits);
}

export function percent(value) {
  return typeof value === "number" ? `${(value * 100).toFixed(1)} %` : "";
}

export function took(run, now = Date.now()) {
  if (!run.started_at) return "";
  const end = run.finished_at ? Date.parse(run.finished_at) : now;
  const seconds = Math.max(0, (end - Date.parse(run.started_at)) / 1000);
  if (seconds < 60) return `${seconds.toFixed(1)} s`;
  const minutes = Math.floor(seconds / 60);
  return minutes < 60 ? `${minutes} min ${Math.floor(seconds % 60)} s` : `${Math.floor(minutes / 60)} h ${minutes % 60} min`;
}

export function clock(text) {
  return text ? new Date(text).toLocaleTimeString([], { hour: "2-digit", minute: "2-digit", second: "2-digit" }) : "";
}

export function bytes(size) {
  if (size === null || size === undefined) return "";
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let value = size;
  let unit = 0;
  while (value >= 1024 && unit < units.length - 1) {
    value /= 1024;
    unit += 1;
  }
  return `${unit ? value.toFixed(1) : value} ${units[unit]}`;
}

const finiteOf = (points) => points.filter((p) => typeof p.value === "number" && Number.isFinite(p.value));

/** The lowest and the highest value; both undefined without a finite one. */
export function range(points) {
  let low;
  let high;
  for (const { value } of finiteOf(points)) {
    if (low === undefined || value < low) low = value;
    if (high === undefined || value > high) high = value;
  }
  return [low, high];
}

/** Points of one metric as an SVG polyline in a 100 x 40 box; non-finite values leave a gap out. */
export function polyline(points) {
  const finite = finiteOf(points);
  if (finite.length < 2) return "";
  const [low, high] = range(finite);
  const last = finite.length - 1;
  const height = (value) => (high === low ? 20 : 38 - ((value - low) / (high - low)) * 36);
  return finite.map((p, i) => `${((i / last) * 100).toFixed(2)},${height(p.value).toFixed(2)}`).join(" ");
}

/** A file's name without the id of its run in front, which the page shows anyway. */
export function shortName(name, runId) {
  return name.startsWith(`${runId}-`) && name.length > runId.length + 1 ? name.slice(runId.length + 1) : name;
}

/** What became of a run, in one sentence; empty when there is nothing to add. */
export function reason(run) {
  if (run.status === "queued") return run.queue_reason ?? "";
  if (run.status === "disconnected") return "Its worker isn't connected; the run goes on there and its events follow.";
  return run.error ? `${run.error}${run.cause ? ` (${run.cause})` : ""}` : "";
}

export function devicesOf(worker) {
  return (worker.devices ?? []).map((d) => `${d.device} ${d.used ?? 0}/${d.slots ?? 0}`).join(", ");
}
