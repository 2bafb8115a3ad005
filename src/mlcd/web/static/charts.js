// Charts that answer to the reader: uPlot with the colours and marks of the report's pictures.

import { duration, usd } from "./ui.js";

const SHAPES = ["circle", "square", "triangle", "diamond"];

/** 1, 2 and 5 times the powers of ten. */
const DECADES = Array.from({ length: 20 }, (_, at) => [1, 2, 5].map((times) => times * 10 ** (at - 8))).flat();
/** Round durations in seconds. */
const TIMES = [1, 5, 15, 60, 300, 900, ...[1, 2, 4, 8, 16].map((hours) => 3600 * hours), ...[1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024].map((days) => 86400 * days)];
const MOST_TICKS = 6;
const MOST_NARROW_TICKS = 4;
const LOG_FROM = 12;
const MOST_NAMES = 12;

/** Those of the round numbers that lie within, every second or third of them where there are many; multiples of one of them where the axis is linear. */
function ticks(round, low, high, log, most) {
  if (!log) {
    const step = round.find((value) => (high - low) / value <= most) ?? high - low;
    const first = Math.ceil(low / step);
    return Array.from({ length: Math.floor(high / step) - first + 1 }, (_, at) => step * (first + at));
  }
  const within = round.filter((value) => value >= low && value <= high);
  const every = Math.ceil(within.length / most) || 1;
  return within.filter((_, at) => at % every === 0);
}

/** A colour of the pictures, light or dark as the page is. */
export function colour(role) {
  const probe = document.createElement("span");
  probe.className = "mlcd";
  probe.hidden = true;
  document.body.append(probe);
  const found = getComputedStyle(probe).getPropertyValue(`--p-${role}`).trim();
  probe.remove();
  return found || "#888";
}

function key(css, name) {
  const item = document.createElement("span");
  const dash = document.createElement("i");
  dash.className = css;
  item.append(dash, name);
  return item;
}

function mark(ctx, shape, x, y, size) {
  ctx.beginPath();
  if (shape === "circle") ctx.arc(x, y, size, 0, 2 * Math.PI);
  else if (shape === "square") ctx.rect(x - size, y - size, 2 * size, 2 * size);
  else if (shape === "triangle") { ctx.moveTo(x, y - size * 1.2); ctx.lineTo(x + size * 1.2, y + size); ctx.lineTo(x - size * 1.2, y + size); ctx.closePath(); }
  else { ctx.moveTo(x, y - size * 1.3); ctx.lineTo(x + size * 1.3, y); ctx.lineTo(x, y + size * 1.3); ctx.lineTo(x - size * 1.3, y); ctx.closePath(); }
}

/**
 * Points of several groups. groups: [{name, points: [{x, y, label, name, faded, ring, front}]}]: `name` stands beside
 * the mark where there are few, a line goes through those on the front. A group's `look` is the place of its colour and
 * shape, by default its own place.
 * text: {x, y} make the labels of the axes, which are logarithmic where values differ by a factor of LOG_FROM.
 * limits: {x, y} are drawn where they are near the points.
 */
export function scatter(place, groups, { text, limits = {}, height = 320 }) {
  place.replaceChildren();
  if (!groups.some((group) => group.points.length)) return null;
  const look = (at) => groups[at].look ?? at;
  const muted = colour("muted");
  const grid = { stroke: colour("grid"), width: 1 };
  const all = groups.flatMap((group) => group.points);
  const shown = {};
  const ends = (name) => {
    const values = all.map((point) => point[name]);
    const [low, high] = [Math.min(...values), Math.max(...values)];
    const limit = limits[name] ?? null;
    shown[name] = limit !== null && limit > low / 3 && limit < high * 3 ? limit : null;
    return shown[name] === null ? [low, high] : [Math.min(low, limit), Math.max(high, limit)];
  };
  const isLog = (name) => ends(name)[0] > 0 && ends(name)[1] / ends(name)[0] > LOG_FROM;
  const axis = (name, make, label, size, round) => ({ splits: (_, __, low, high) => ticks(round, low, high, isLog(name), name === "x" && place.clientWidth < 480 ? MOST_NARROW_TICKS : MOST_TICKS), filter: (_, splits) => splits, stroke: muted, grid, ticks: grid, label, size, labelSize: 20, labelFont: "12px system-ui", font: "12px system-ui", values: (_, splits) => splits.map((value) => (value === null ? "" : make(value))) });
  const draw = (chart, at) => {
    const { ctx } = chart;
    const group = groups[at - 1];
    const scale = devicePixelRatio;
    ctx.save();
    for (const point of group.points) {
      const x = chart.valToPos(point.x, "x", true);
      const y = chart.valToPos(point.y, "y", true);
      ctx.globalAlpha = point.faded ? 0.3 : 1;
      ctx.fillStyle = colour(`s${look(at - 1) % 6}`);
      mark(ctx, SHAPES[look(at - 1) % SHAPES.length], x, y, 5 * scale);
      ctx.fill();
      if (point.ring) {
        ctx.globalAlpha = 1;
        ctx.strokeStyle = colour("accent");
        ctx.lineWidth = 2.4 * scale;
        ctx.beginPath();
        ctx.arc(x, y, 10 * scale, 0, 2 * Math.PI);
        ctx.stroke();
      }
    }
    ctx.restore();
    return null;
  };
  const line = (chart, points, stroke, dash) => {
    const { ctx } = chart;
    ctx.save();
    ctx.strokeStyle = stroke;
    ctx.lineWidth = 1.4 * devicePixelRatio;
    ctx.setLineDash(dash.map((size) => size * devicePixelRatio));
    ctx.beginPath();
    points.forEach(([x, y], at) => (at ? ctx.lineTo(x, y) : ctx.moveTo(x, y)));
    ctx.stroke();
    ctx.restore();
  };
  const behind = (chart) => {
    const at = (point) => [chart.valToPos(point.x, "x", true), chart.valToPos(point.y, "y", true)];
    const front = all.filter((point) => point.front).sort((a, b) => a.x - b.x).map(at);
    const steps = front.flatMap(([x, y], index) => (index ? [[x, front[index - 1][1]], [x, y]] : [[x, y]]));
    if (steps.length > 1) line(chart, steps, colour("ink"), []);
    const { left, top, width, height: tall } = chart.bbox;
    if (shown.x !== null) line(chart, [top, top + tall].map((y) => [chart.valToPos(shown.x, "x", true), y]), colour("bad"), [6, 4]);
    if (shown.y !== null) line(chart, [left, left + width].map((x) => [x, chart.valToPos(shown.y, "y", true)]), colour("bad"), [6, 4]);
  };
  const names = (chart) => {
    if (all.length > MOST_NAMES) return;
    const { ctx } = chart;
    ctx.save();
    ctx.font = `${12 * devicePixelRatio}px system-ui`;
    ctx.textBaseline = "middle";
    ctx.textAlign = "left";
    ctx.lineWidth = 4 * devicePixelRatio;
    ctx.strokeStyle = colour("paper");
    const taken = [];
    const [high, gap] = [14 * devicePixelRatio, 12 * devicePixelRatio];
    for (const point of all.filter((each) => each.name).sort((a, b) => Boolean(b.ring) - Boolean(a.ring))) {
      const [x, y] = [chart.valToPos(point.x, "x", true), chart.valToPos(point.y, "y", true)];
      const wide = ctx.measureText(point.name).width;
      const places = [[x + gap, y - gap], [x - gap - wide, y - gap], [x + gap, y + gap], [x - gap - wide, y + gap]];
      const { left, top, width: room, height: tall } = chart.bbox;
      const free = places.find(([at, middle]) => at >= left && at + wide <= left + room && middle > top && middle < top + tall
        && !taken.some(([from, to, line]) => at < to && at + wide > from && Math.abs(line - middle) < high));
      if (!free) continue; // the table has it
      taken.push([free[0], free[0] + wide, free[1]]);
      ctx.fillStyle = colour(point.ring ? "accent" : point.faded ? "muted" : "ink");
      ctx.strokeText(point.name, ...free);
      ctx.fillText(point.name, ...free);
    }
    ctx.restore();
  };
  const range = (name) => {
    const [low, high] = ends(name);
    if (isLog(name)) return [low / 1.3, high * 1.3];
    const pad = (high - low || high || 1) * 0.08;
    return [Math.max(0, low - pad), high + pad];
  };
  const hint = document.createElement("div");
  hint.className = "hint";
  hint.hidden = true;
  const chart = new uPlot({
    width: Math.max(280, place.clientWidth), height, mode: 2, legend: { show: false },
    cursor: { drag: { x: false, y: false }, points: { show: false } },
    scales: { x: { time: false, distr: isLog("x") ? 3 : 1, range: range("x") }, y: { distr: isLog("y") ? 3 : 1, range: range("y") } },
    axes: [axis("x", text.x, text.xName, 34, text.xTicks ?? DECADES), axis("y", text.y, text.yName, 72, text.yTicks ?? DECADES)],
    series: [{}, ...groups.map((group) => ({ label: group.name, paths: draw, points: { show: false } }))],
    hooks: {
      drawAxes: [behind],
      draw: [names],
      setCursor: [(made) => {
        const { left, top } = made.cursor;
        let near = null;
        let least = 18;
        if (left >= 0) for (const point of all) {
          const far = Math.hypot(made.valToPos(point.x, "x") - left, made.valToPos(point.y, "y") - top);
          if (far < least) { least = far; near = point; }
        }
        hint.hidden = !near;
        if (near) {
          hint.textContent = near.label;
          hint.style.left = `${Math.min(left + 80, made.width - 180)}px`;
          hint.style.top = `${top + 12}px`;
        }
      }],
    },
  }, [null, ...groups.map((group) => [group.points.map((point) => point.x), group.points.map((point) => point.y)])], place);
  place.append(hint);
  const legend = document.createElement("div");
  legend.className = "marks";
  groups.forEach((group, at) => {
    const item = document.createElement("span");
    const dot = document.createElement("i");
    dot.style.background = colour(`s${look(at) % 6}`);
    dot.className = SHAPES[look(at) % SHAPES.length];
    item.append(dot, group.name);
    legend.append(item);
  });
  if (all.some((point) => point.front)) legend.append(key("front", "Pareto front"));
  if (shown.x !== null || shown.y !== null) legend.append(key("limit", "limit"));
  place.append(legend);
  new ResizeObserver(() => {
    const width = Math.max(280, place.clientWidth);
    if (Math.abs(width - chart.width) > 2) chart.setSize({ width, height });
  }).observe(place);
  return chart;
}

export const asTime = (seconds) => duration(seconds);
export const asMoney = (value) => (value >= 1 ? usd(value).replace(/\.00$/, "") : usd(value));
export const timeTicks = TIMES;
