"use strict";
// Draws the document of `frit inspect --json`, which stands in this page. All text goes in as text, never as markup.
const data = JSON.parse(document.getElementById("data").textContent);
const steps = data.schedule.steps, values = data.memory.values, live = data.memory.live;
const $ = (id) => document.getElementById(id);
const SVG = "http://www.w3.org/2000/svg";

function fill(node, attributes, children) {
  for (const [k, v] of Object.entries(attributes || {})) {
    if (k.startsWith("on")) node.addEventListener(k.slice(2), v);
    else if (v !== undefined && v !== false && v !== null) node.setAttribute(k, v);
  }
  node.append(...children.flat().filter((c) => c !== undefined && c !== null));
  return node;
}
const h = (tag, attributes, ...children) => fill(document.createElement(tag), attributes, children);
const s = (tag, attributes, ...children) => fill(document.createElementNS(SVG, tag), attributes, children);

function scaled(n, units, base) {
  let i = 0;
  while (n >= base && i < units.length - 1) { n /= base; i++; }
  return `${i === 0 ? n : n >= 100 ? n.toFixed(0) : n.toFixed(1)}\u00a0${units[i]}`;
}
const bytes = (n) => scaled(n, ["B", "kB", "MB", "GB", "TB"], 1000);
const flops = (n) => scaled(n, ["", "k", "M", "G", "T", "P"], 1000).trim();
const percent = (a, all) => (all > 0 ? `${((100 * a) / all).toFixed(1)} %` : "–");
const type = (x) => (x.dtype ? `${x.dtype}[${x.shape.join(", ")}]` : "bytes");
const sum = (list, f) => list.reduce((a, x) => a + f(x), 0);

// Colours by op, the most frequent first; scratch is grey.
const PALETTE = ["#4e79a7", "#f28e2b", "#59a14f", "#e15759", "#b07aa1", "#76b7b2", "#edc948", "#9c755f", "#ff9da7", "#86bc5c",
  "#5f9ed1", "#c85200"];
const SCRATCH = "#8b9198";
const counts = new Map();
for (const x of steps) counts.set(x.op, (counts.get(x.op) || 0) + 1);
const ops = [...counts.keys()].sort((a, b) => counts.get(b) - counts.get(a));
const colour = (op) => (op === "scratch" ? SCRATCH : PALETTE[ops.indexOf(op) % PALETTE.length]);
const kind = (v) => (v.kind === "scratch" ? "scratch" : steps[v.first].op);
// Models name their weights better than the values between: a step that reads some is called after the first of them.
const label = (x) => {
  const all = x.inputs.filter((o) => o && o.region === "weights" && o.name !== "constant").map((o) => o.name);
  const short = all[0] && all[0].replace(/\.weight$/, "").replace(/^(model|blk)\./, "");
  return short && (all.length > 1 ? `${short} +${all.length - 1}` : short);
};
const ink = (c) => {
  const [r, g, b] = [1, 3, 5].map((i) => parseInt(c.slice(i, i + 2), 16));
  return 0.3 * r + 0.59 * g + 0.11 * b > 140 ? "#111" : "#fff";
};
const chip = (op) => h("span", { class: "chip", style: `background:${colour(op)}` });

// What the user chose.
const look = { size: data.schedule.sizes.length - 1, text: "", hidden: new Set(), step: null, value: null, sort: "index", down: false };
const all = { x0: 0, x1: Math.max(steps.length, 1), y0: 0, y1: Math.max(data.arena_bytes, 1) * 1.04 };
const view = { ...all };
const cost = (x, what) => x[what].at[look.size] || 0;

const texts = steps.map((x) =>
  [x.name, x.op, ...x.rows.map((r) => r.row), ...[...x.inputs, ...x.outputs].map((o) => (o ? `${o.name} ${type(o)}` : ""))]
    .join(" ").toLowerCase());
const fits = (text) => look.text.split(/\s+/).every((w) => text.includes(w));
const stepShown = (i) => !look.hidden.has(steps[i].op) && fits(texts[i]);
const valueShown = (v) => !look.hidden.has(kind(v)) && fits(`${v.name} ${kind(v)} ${type(v)}`.toLowerCase());

function summary() {
  $("title").textContent = data.model.split("/").pop();
  $("subtitle").textContent = `${data.architecture}, ${data.layers} layers, context ${data.context}, at most ` +
    `${data.chunk} tokens a step, target ${data.target} with ${data.threads} threads`;
  const weights = sum(data.memory.weights, (w) => w.bytes), states = sum(data.memory.states, (w) => w.bytes);
  const ratio = data.live_bytes > 0 ? data.arena_bytes / data.live_bytes : 1;
  const rows = [
    ["arena", bytes(data.arena_bytes)],
    ["largest live set", bytes(data.live_bytes)],
    ["arena / live set", ratio.toFixed(3)],
    ["weights", bytes(weights), `${data.memory.weights.length} tensors`],
    ["states", bytes(states), `${data.memory.states.length} tensors`],
    ["graph", `${data.nodes}\u00a0→\u00a0${data.fused_nodes}`, "nodes"],
    ["schedule", String(steps.length), "steps"],
    ["work of a run", flops(sum(steps, (x) => cost(x, "flops"))), "FLOPs"],
    ["traffic of a run", bytes(sum(steps, (x) => cost(x, "bytes")))],
  ];
  $("summary").replaceChildren(...rows.map(([k, v, unit]) =>
    h("div", {}, h("dt", {}, k), h("dd", {}, v, unit ? h("small", {}, ` ${unit}`) : null))));
}

function sizes() {
  const name = (z) => Object.entries(z.values).map(([k, v]) => `${k}=${v}`).join(" ");
  $("sizes").replaceChildren(h("span", { class: "soft" }, "costs at"), ...data.schedule.sizes.map((z, i) =>
    h("button", { role: "radio", "aria-checked": String(i === look.size), title: name(z),
      onclick: () => { look.size = i; sizes(); summary(); costs(); table(); picked(); } }, `${z.name} sizes`)));
}

function legend() {
  const kinds = values.some((v) => v.kind === "scratch") ? [...ops, "scratch"] : ops;
  $("legend").replaceChildren(...kinds.map((op) =>
    h("button", { "aria-pressed": String(!look.hidden.has(op)), onclick: () => {
      if (!look.hidden.delete(op)) look.hidden.add(op);
      legend(); refilter();
    } }, chip(op), op, h("span", { class: "soft" }, ` ${op === "scratch" ? "" : counts.get(op)}`))));
}

// ---- the chart ----
const HEIGHT = 380, LEFT = 62, BOTTOM = 22, TOP = 8;
let width = 800;
const px = (x) => LEFT + ((x - view.x0) / (view.x1 - view.x0)) * (width - LEFT);
const py = (y) => TOP + (1 - (y - view.y0) / (view.y1 - view.y0)) * (HEIGHT - TOP - BOTTOM);

function ticks(from, to, most) {
  const rough = (to - from) / most, power = 10 ** Math.floor(Math.log10(rough));
  const by = [1, 2, 5, 10].map((m) => m * power).find((m) => m >= rough);
  const out = [];
  for (let v = Math.ceil(from / by) * by; v <= to; v += by) out.push(v);
  return out;
}

function box(v, i) {
  const [x0, x1] = [Math.max(px(v.first), LEFT), Math.min(px(v.last + 1), width)];
  const [y0, y1] = [Math.max(py(v.offset + v.bytes), TOP), Math.min(py(v.offset), HEIGHT - BOTTOM)];
  if (x1 <= x0 || y1 <= y0) return [];
  const shown = valueShown(v), c = colour(kind(v));
  const mark = (shown ? "" : " faint") + (look.value === i ? " chosen" : "");
  const [w, t] = [Math.max(x1 - x0, 1), Math.max(y1 - y0, 0.7)];
  const rect = s("rect", { class: `value${mark}`, x: x0, y: y0, width: w, height: t, fill: c, "data-i": i });
  const room = Math.floor((w - 8) / 6.4);
  if (!shown || t < 14 || room < 4) return [rect];
  const full = (v.kind !== "scratch" && label(steps[v.first])) || v.name;
  // The end of a name tells more than its start.
  const name = full.length > room ? `…${full.slice(1 - room)}` : full;
  return [rect, s("text", { class: "inside", x: x0 + 4, y: y0 + Math.min(t / 2 + 4, 16), style: `fill:${ink(c)}` }, name)];
}

function chart() {
  width = Math.max($("chart").clientWidth, 200);
  const parts = [];
  for (const y of ticks(view.y0, view.y1, 6)) {
    parts.push(s("line", { class: "grid", x1: LEFT, x2: width, y1: py(y), y2: py(y) }),
      s("text", { x: LEFT - 5, y: py(y) + 4, "text-anchor": "end" }, bytes(y)));
  }
  for (const x of ticks(view.x0, view.x1, Math.max(width / 90, 2)).filter(Number.isInteger)) {
    parts.push(s("line", { class: "grid", x1: px(x), x2: px(x), y1: TOP, y2: HEIGHT - BOTTOM }),
      s("text", { x: px(x), y: HEIGHT - 6, "text-anchor": "middle" }, String(x)));
  }
  // The value at hand is drawn last, over its neighbours.
  const order = values.map((_, i) => i).filter((i) => values[i].last + 1 > view.x0 && values[i].first < view.x1);
  if (look.value !== null) order.push(...order.splice(order.indexOf(look.value), 1));
  parts.push(...order.flatMap((i) => box(values[i], i)));
  if (look.step !== null) {
    const [a, b] = [Math.max(px(look.step), LEFT), Math.max(px(look.step + 1), LEFT)];
    parts.push(s("rect", { class: "cursor", x: a, y: TOP, width: Math.max(b - a, 2), height: HEIGHT - TOP - BOTTOM }));
  }
  if (data.arena_bytes <= view.y1) {
    const y = py(data.arena_bytes);
    parts.push(s("line", { class: "top", x1: LEFT, x2: width, y1: y, y2: y }));
  }
  $("chart").replaceChildren(s("svg", { viewBox: `0 0 ${width} ${HEIGHT}`, height: HEIGHT }, ...parts));
  overview();
}

function overview() {
  const H = 46, n = Math.max(steps.length, 1), most = Math.max(...live, 1);
  const x = (i) => LEFT + (i / n) * (width - LEFT), y = (b) => H - (b / most) * (H - 4);
  let path = `M${LEFT},${H}`;
  live.forEach((b, i) => { path += `L${x(i)},${y(b)}L${x(i + 1)},${y(b)}`; });
  $("overview").replaceChildren(s("svg", { viewBox: `0 0 ${width} ${H}`, height: H },
    s("path", { class: "live", d: `${path}L${width},${H}Z` }),
    s("rect", { class: "window", x: x(view.x0), y: 0.5, width: x(view.x1) - x(view.x0), height: H - 1 })));
}

function clamp(lo, hi, low, high) {
  const span = Math.min(hi - lo, high - low);
  const a = Math.min(Math.max(lo, low), high - span);
  return [a, a + span];
}
function show(x0, x1, y0, y1) {
  [view.x0, view.x1] = clamp(x0, x1, all.x0, all.x1);
  [view.y0, view.y1] = clamp(y0, y1, all.y0, all.y1);
  chart();
}
function zoom(by, vertical, fx, fy) {
  const around = (lo, hi, f, least) => {
    const span = Math.max((hi - lo) * by, least), at = lo + (hi - lo) * f;
    return [at - span * f, at + span * (1 - f)];
  };
  const [x0, x1] = vertical ? [view.x0, view.x1] : around(view.x0, view.x1, fx ?? focus(), 4);
  const [y0, y1] = vertical ? around(view.y0, view.y1, fy ?? 0, Math.min(1024, all.y1)) : [view.y0, view.y1];
  show(x0, x1, y0, y1);
}
// Where to zoom to without a pointer: the step at hand, if it is in sight.
function focus() {
  const f = look.step === null ? 0.5 : (look.step + 0.5 - view.x0) / (view.x1 - view.x0);
  return f >= 0 && f <= 1 ? f : 0.5;
}
const pan = (dx, dy) => show(view.x0 + dx, view.x1 + dx, view.y0 + dy, view.y1 + dy);

function facts(pairs) {
  return h("dl", { class: "facts" }, ...pairs.flatMap(([k, v]) => [h("dt", {}, k), h("dd", {}, v)]));
}
function about(v) {
  return [h("b", {}, v.kind === "scratch" ? `scratch of ${v.name}` : v.name), facts([
    ["kind", kind(v)], ...(label(steps[v.first]) ? [["weights", label(steps[v.first])]] : []), ["type", type(v)], ["bytes", `${bytes(v.bytes)} (${v.bytes.toLocaleString("en")})`],
    ["steps", `${v.first} to ${v.last} (${v.last - v.first + 1})`], ["offset", v.offset.toLocaleString("en")]])];
}

function tip(event) {
  const i = event.target.dataset ? event.target.dataset.i : undefined;
  $("tip").hidden = i === undefined;
  if (i === undefined) return;
  $("tip").replaceChildren(...about(values[i]));
  const r = $("tip").getBoundingClientRect();
  $("tip").style.left = `${Math.max(4, Math.min(event.clientX + 14, innerWidth - r.width - 8))}px`;
  $("tip").style.top = `${event.clientY + 16 + r.height > innerHeight ? event.clientY - r.height - 12 : event.clientY + 16}px`;
}

function listen() {
  const c = $("chart");
  let drag = null;
  const at = (e) => (view.x1 - view.x0) * ((e.clientX - c.getBoundingClientRect().left - LEFT) / (width - LEFT));
  c.addEventListener("pointerdown", (e) => { drag = { x: e.clientX, y: e.clientY, view: { ...view }, moved: false, i: e.target.dataset.i }; });
  c.addEventListener("pointermove", (e) => {
    if (!drag || !(e.buttons & 1)) { drag = null; return tip(e); }
    const [dx, dy] = [e.clientX - drag.x, e.clientY - drag.y];
    if (!drag.moved && Math.hypot(dx, dy) < 4) return;
    if (!drag.moved) { drag.moved = true; c.setPointerCapture(e.pointerId); }
    $("tip").hidden = true;
    const v = drag.view, x = (-dx / (width - LEFT)) * (v.x1 - v.x0), y = (dy / (HEIGHT - TOP - BOTTOM)) * (v.y1 - v.y0);
    show(v.x0 + x, v.x1 + x, v.y0 + y, v.y1 + y);
  });
  c.addEventListener("pointerup", (e) => {
    if (drag && !drag.moved) {
      const step = Math.floor(view.x0 + at(e));
      choose(step >= 0 && step < steps.length ? step : null, drag.i === undefined ? null : Number(drag.i));
    }
    drag = null;
  });
  c.addEventListener("pointerleave", () => { $("tip").hidden = true; });
  c.addEventListener("dblclick", () => show(all.x0, all.x1, all.y0, all.y1));
  c.addEventListener("wheel", (e) => {
    // Without the focus the wheel scrolls the page, as everywhere.
    if (document.activeElement !== c && !e.ctrlKey) return;
    e.preventDefault();
    const r = c.getBoundingClientRect(), by = 1.2 ** Math.sign(e.deltaY || e.deltaX);
    zoom(by, e.shiftKey || e.altKey, (e.clientX - r.left - LEFT) / (width - LEFT), 1 - (e.clientY - r.top - TOP) / (HEIGHT - TOP - BOTTOM));
  }, { passive: false });
  const keys = {
    "+": (e) => zoom(0.8, e.altKey), "=": (e) => zoom(0.8, e.altKey), "-": (e) => zoom(1.25, e.altKey),
    "0": () => show(all.x0, all.x1, all.y0, all.y1),
    ArrowLeft: () => pan(-(view.x1 - view.x0) / 8, 0), ArrowRight: () => pan((view.x1 - view.x0) / 8, 0),
    ArrowUp: () => pan(0, (view.y1 - view.y0) / 8), ArrowDown: () => pan(0, -(view.y1 - view.y0) / 8),
    ",": () => walk(-1), ".": () => walk(1), Enter: () => reveal(), Escape: () => choose(null, null),
  };
  c.addEventListener("keydown", (e) => {
    const act = keys[e.key];
    if (!act || e.ctrlKey || e.metaKey) return;
    e.preventDefault();
    $("tip").hidden = true;
    act(e);
  });
  $("zoom-in").addEventListener("click", () => zoom(0.66));
  $("zoom-out").addEventListener("click", () => zoom(1.5));
  $("fit").addEventListener("click", () => show(all.x0, all.x1, all.y0, all.y1));
  const jump = (e) => {
    if (!(e.buttons & 1)) return;
    const f = (e.clientX - $("overview").getBoundingClientRect().left - LEFT) / (width - LEFT), half = (view.x1 - view.x0) / 2;
    show(f * all.x1 - half, f * all.x1 + half, view.y0, view.y1);
  };
  $("overview").addEventListener("pointerdown", jump);
  $("overview").addEventListener("pointermove", jump);
  $("search").addEventListener("input", () => { look.text = $("search").value.trim().toLowerCase(); refilter(); });
  document.addEventListener("keydown", (e) => {
    if (e.key === "/" && !/^(INPUT|TEXTAREA)$/.test(document.activeElement.tagName)) { e.preventDefault(); $("search").focus(); }
  });
  new ResizeObserver(() => { if ($("chart").clientWidth !== width) chart(); }).observe(c);
}

function walk(by) {
  const shown = steps.map((_, i) => i).filter(stepShown);
  if (!shown.length) return;
  const from = look.step ?? (by > 0 ? -1 : steps.length);
  const next = by > 0 ? shown.find((i) => i > from) : shown.findLast((i) => i < from);
  if (next === undefined) return;
  const span = view.x1 - view.x0;
  if (next < view.x0 || next + 1 > view.x1) [view.x0, view.x1] = clamp(next - span / 2, next + span / 2, all.x0, all.x1);
  const made = values.findIndex((v) => v.first === next && v.kind !== "scratch");
  choose(next, made < 0 ? null : made);
}

// ---- what is chosen ----
function choose(step, value) {
  [look.step, look.value] = [step, value];
  chart();
  picked();
  for (const row of $("steps").querySelectorAll("tr.step")) row.classList.toggle("chosen", Number(row.dataset.i) === step);
}
function picked() {
  if (look.step === null) return $("picked").replaceChildren(h("span", { class: "soft" }, "Nothing chosen: click a box, or focus the chart and press . "));
  const x = steps[look.step];
  const parts = [h("div", {}, chip(x.op), h("b", {}, `step ${look.step}`), ` ${x.name} = ${x.op}${label(x) ? ` of ${label(x)}` : ""} by ${x.rows.map((r) => r.row).join(" | ")}; `,
    `live ${bytes(live[look.step] || 0)} (${percent(live[look.step] || 0, data.live_bytes)} of the largest set) `,
    h("button", { class: "link", onclick: reveal }, "show in the schedule"))];
  if (look.value !== null) parts.push(h("div", {}, ...about(values[look.value])));
  $("picked").replaceChildren(...parts);
}
function reveal() {
  const row = $("steps").querySelector(`tr.step[data-i="${look.step}"]`);
  if (!row) return;
  if (row.getAttribute("aria-expanded") !== "true") row.click();
  row.scrollIntoView({ block: "center" });
  row.focus({ preventScroll: true });
}

// ---- the schedule ----
function meter(a, most, text) {
  return h("td", { class: "n" }, text, h("span", { class: "meter" }, h("i", { style: `width:${most > 0 ? (100 * a) / most : 0}%` })));
}

function costs() {
  const total = { flops: sum(steps, (x) => cost(x, "flops")), bytes: sum(steps, (x) => cost(x, "bytes")) };
  const of = (op, what) => sum(steps.filter((x) => x.op === op), (x) => cost(x, what));
  const rows = [...ops].sort((a, b) => of(b, "bytes") - of(a, "bytes")).map((op) => h("tr", {},
    h("td", { class: "op" }, chip(op), op), h("td", { class: "n" }, String(counts.get(op))),
    meter(of(op, "flops"), total.flops, `${flops(of(op, "flops"))}, ${percent(of(op, "flops"), total.flops)}`),
    meter(of(op, "bytes"), total.bytes, `${bytes(of(op, "bytes"))}, ${percent(of(op, "bytes"), total.bytes)}`)));
  $("costs").replaceChildren(h("table", {}, h("thead", {}, h("tr", {}, h("th", {}, "op"), h("th", { class: "n" }, "steps"),
    h("th", { class: "n" }, "FLOPs"), h("th", { class: "n" }, "bytes moved"))), h("tbody", {}, ...rows)));
}

const COLUMNS = [
  ["index", "step", "n", (x) => x.index], ["name", "makes", "", (x) => x.name], ["op", "op", "", (x) => x.op],
  ["row", "kernel", "", (x) => x.rows[0].row], [null, "reads", "wide"], ["from", "fused from", "n wide", (x) => x.fused_from.length],
  ["flops", "FLOPs", "n", (x) => cost(x, "flops")], ["bytes", "bytes moved", "n", (x) => cost(x, "bytes")],
];

function table() {
  const key = COLUMNS.find((c) => c[0] === look.sort)[3];
  const order = steps.map((_, i) => i).filter(stepShown).sort((a, b) => {
    const [p, q] = [key(steps[a]), key(steps[b])], sign = look.down ? -1 : 1;
    return p < q ? -sign : p > q ? sign : a - b;
  });
  const most = { flops: Math.max(...steps.map((x) => cost(x, "flops")), 0), bytes: Math.max(...steps.map((x) => cost(x, "bytes")), 0) };
  const total = { flops: sum(steps, (x) => cost(x, "flops")), bytes: sum(steps, (x) => cost(x, "bytes")) };
  const head = COLUMNS.map(([id, title, mark]) => h("th", { class: mark, scope: "col",
    "aria-sort": id && id === look.sort ? (look.down ? "descending" : "ascending") : undefined },
    id ? h("button", { onclick: () => sort(id) }, title, look.sort === id ? (look.down ? " ▾" : " ▴") : "") : title));
  const rows = order.map((i) => {
    const x = steps[i];
    const row = h("tr", { class: `step${look.step === i ? " chosen" : ""}`, "data-i": i, tabindex: 0, "aria-expanded": "false" },
      h("td", { class: "n" }, String(i)), h("td", { class: "mono" }, x.name), h("td", { class: "op" }, chip(x.op), x.op),
      h("td", { class: "mono" }, x.rows.map((r) => r.row).join(" | ")),
      h("td", { class: "mono wide" }, x.inputs.filter((o) => o).map((o) => o.name).join(", ")),
      h("td", { class: "n wide" }, x.fused_from.length > 1 ? `${x.fused_from.length} nodes` : ""),
      meter(cost(x, "flops"), most.flops, `${flops(cost(x, "flops"))}, ${percent(cost(x, "flops"), total.flops)}`),
      meter(cost(x, "bytes"), most.bytes, `${bytes(cost(x, "bytes"))}, ${percent(cost(x, "bytes"), total.bytes)}`));
    const toggle = () => {
      const open = row.getAttribute("aria-expanded") === "true";
      row.setAttribute("aria-expanded", String(!open));
      if (open) row.nextSibling.remove(); else row.after(h("tr", { class: "more" }, h("td", { colspan: COLUMNS.length }, ...details(x))));
      const made = values.findIndex((v) => v.first === i && v.kind !== "scratch");
      if (!open) choose(i, made < 0 ? null : made);
    };
    row.addEventListener("click", toggle);
    row.addEventListener("keydown", (e) => {
      const next = (by) => { let r = row; do { r = by > 0 ? r.nextSibling : r.previousSibling; } while (r && !r.classList.contains("step")); return r; };
      const act = { Enter: toggle, " ": toggle, ArrowDown: () => next(1)?.focus(), ArrowUp: () => next(-1)?.focus() }[e.key];
      if (act) { e.preventDefault(); act(); }
    });
    return row;
  });
  $("steps").replaceChildren(h("thead", {}, h("tr", {}, ...head)), h("tbody", {}, ...rows));
}
function sort(id) {
  [look.down, look.sort] = [id === look.sort ? !look.down : id === "flops" || id === "bytes" || id === "from", id];
  table();
}

function operand(o, i) {
  if (!o) return h("li", { class: "soft" }, "left out");
  return h("li", {}, h("b", {}, o.name), ` ${type(o)} in ${o.region} ${o.region === "arena" ? `+${o.offset}` : o.buffer}`,
    o.region !== "arena" && o.offset !== "0" ? ` +${o.offset}` : "", h("span", { class: "soft" }, ` strides [${o.strides.join(", ")}]`),
    o.packing ? ` packed as ${o.packing}` : "");
}
function details(x) {
  const list = (items) => h("ul", { class: "mono" }, ...items);
  const candidate = (r) => h("li", {}, h("b", {}, r.row), r.when ? ` if ${r.when}` : "",
    h("span", { class: "soft" }, ` ${Object.entries(r.params).map(([k, v]) => `${k}=${v}`).join(" ")}`), r.scratch !== "0" ? ` scratch ${r.scratch} B` : "");
  const parts = [["kernels, the first that fits", list(x.rows.map(candidate))], ["inputs", list(x.inputs.map(operand))],
    ["results", list(x.outputs.map(operand))]];
  if (x.exprs.length) parts.push(["expressions", list(x.exprs.map((e) => h("li", {}, e)))]);
  if (x.fused_from.length) parts.push(["made from these nodes", list(x.fused_from.map((n) => h("li", {}, `${n.names.join(", ")} = ${n.op}`)))]);
  if (x.expanded_from) parts.push(["expanded from", x.expanded_from]);
  if (x.copies.length) parts.push(["copied for it", x.copies.join(", ")]);
  parts.push(["FLOPs", h("code", {}, x.flops.formula)], ["bytes moved", h("code", {}, x.bytes.formula)]);
  return [facts(parts)];
}

// ---- fusions ----
function passes() {
  const rows = data.passes.map((p) => h("tr", {}, h("td", {}, p.name), h("td", { class: "n" }, String(p.nodes)),
    h("td", { class: "n" }, p.milliseconds.toFixed(1)),
    h("td", {}, p.name === "fuse" ? Object.entries(data.fused).map(([k, n]) => `${k} ×${n}`).join(", ") : "")));
  $("passes").replaceChildren(h("table", {}, h("thead", {}, h("tr", {}, h("th", {}, "pass"), h("th", { class: "n" }, "nodes after"),
    h("th", { class: "n" }, "ms"), h("th", {}, "formed"))), h("tbody", {}, ...rows)));
}
const named = (list) => list.map((n) => `${n.names.join(", ")} = ${n.op}`).join("; ");
function shape(list) {
  const seen = new Map();
  for (const n of list) seen.set(n.op, (seen.get(n.op) || 0) + 1);
  return [...seen].map(([op, k]) => (k > 1 ? `${op} ×${k}` : op)).join(" + ");
}
function sites() {
  const groups = new Map();
  for (const f of data.fusions.sites) {
    const text = `${f.pattern} ${named(f.before)} ${named(f.after)}`.toLowerCase();
    if (!fits(text)) continue;
    const key = `${f.pattern}\n${shape(f.before)}\n${shape(f.after)}`;
    if (!groups.has(key)) groups.set(key, []);
    groups.get(key).push(f);
  }
  const goto = (f) => {
    const here = (x) => f.after.some((n) => n.names.includes(x.name) || x.fused_from.some((m) => m.names.some((k) => n.names.includes(k))));
    const i = steps.findIndex(here);
    const open = () => { choose(i, null); reveal(); };
    return i < 0 ? h("span", {}, named(f.after)) : h("button", { class: "link", onclick: open, title: `step ${i}` }, named(f.after));
  };
  const group = ([key, list]) => {
    const [pattern, before, after] = key.split("\n");
    const box = h("details", {}, h("summary", {}, h("b", {}, pattern), ` ×${list.length}: `, h("code", {}, before), h("span", { class: "arrow" }, "→"), h("code", {}, after)));
    // Filled when it is opened: large models have thousands.
    box.addEventListener("toggle", () => {
      if (box.open && !box.querySelector("ul")) box.append(h("ul", { class: "mono" }, ...list.map((f) =>
        h("li", {}, named(f.before), h("span", { class: "arrow" }, "→"), goto(f)))));
    });
    return box;
  };
  const left = data.fusions.refused.map((r) => h("li", {}, h("b", {}, r.pattern), ` at ${r.value}: ${r.why}`));
  $("sites").replaceChildren(...[...groups].sort((a, b) => b[1].length - a[1].length).map(group),
    left.length ? h("details", {}, h("summary", {}, `left alone ×${left.length}`), h("ul", {}, ...left)) : "");
}

function refilter() {
  const n = steps.filter((_, i) => stepShown(i)).length;
  $("matches").textContent = look.text || look.hidden.size ? `${n} of ${steps.length} steps` : "";
  chart(); table(); sites();
}

summary(); sizes(); legend(); costs(); passes(); listen(); refilter(); picked();
