import { describe, expect, it } from "vitest";

import { bytes, number, percent, polyline, range, reason, shortName, sortedRuns, took, where } from "../codefyui_web/static/assets/format.js";

describe("rows for people", () => {
  it("shows the newest run first and leaves the list alone", () => {
    const rows = [{ created_at: "2026-01-01T00:00:00.000Z" }, { created_at: "2026-01-02T00:00:00.000Z" }];
    expect(sortedRuns(rows).map((r) => r.created_at[9])).toEqual(["2", "1"]);
    expect(rows[0].created_at[9]).toBe("1");
  });

  it("says where a run executes, or waits to", () => {
    expect(where({ worker: "gpu", devices: ["cuda:1"] })).toBe("gpu · cuda:1");
    expect(where({ target: { any: true } })).toBe("any worker");
    expect(where({ target: { server: true } })).toBe("this server");
  });

  it("writes numbers that can be compared down a column", () => {
    expect(number(0.123456)).toBe("0.1235");
    expect(number(0.0000012)).toBe("1.20e-6");
    expect(number(null)).toBe("");
    expect(number("nan")).toBe("nan");
    expect(percent(0.9812)).toBe("98.1 %");
    expect(bytes(1536)).toBe("1.5 KiB");
    expect(bytes(12)).toBe("12 B");
  });

  it("counts a running run up to now", () => {
    expect(took({ started_at: "2026-01-01T00:00:00.000Z" }, Date.parse("2026-01-01T00:01:30.000Z"))).toBe("1 min 30 s");
    expect(took({})).toBe("");
  });

  it("leaves non-finite values out of a line", () => {
    expect(polyline([{ value: 0 }, { value: null }, { value: 1 }])).toBe("0.00,38.00 100.00,2.00");
    expect(polyline([{ value: 1 }])).toBe("");
  });

  it("gives the reason of a wait and of a bad end", () => {
    expect(reason({ status: "queued", queue_reason: "2nd in line" })).toBe("2nd in line");
    expect(reason({ status: "failed", error: "boom", cause: "user_code" })).toBe("boom (user_code)");
  });

  it("draws a metric that never changes in the middle, and one point not at all", () => {
    expect(polyline([{ value: 3 }, { value: 3 }])).toBe("0.00,20.00 100.00,20.00");
    expect(range([{ value: 3 }, { value: null }, { value: -1 }])).toEqual([-1, 3]);
    expect(range([{ value: null }])).toEqual([undefined, undefined]);
  });

  it("finds the range of more points than a call takes arguments", () => {
    const points = Array.from({ length: 300_000 }, (_, step) => ({ value: step }));
    expect(range(points)).toEqual([0, 299_999]);
  });

  it("leaves the run's id out of the names of its files", () => {
    expect(shortName("0a1b-net-e5.pt", "0a1b")).toBe("net-e5.pt");
    expect(shortName("0a1b-", "0a1b")).toBe("0a1b-");
    expect(shortName("net.pt", "0a1b")).toBe("net.pt");
  });
});
