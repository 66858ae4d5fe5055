// Draws an upgrade over time: each cluster's share of the traffic, and below it the capacity that is its target in Serve.
// A value holds until the next point. Colour is never alone: the old cluster's line is dashed, and both carry their values.

const SPACE = "http://www.w3.org/2000/svg";
const LEFT = 46, RIGHT = 52, TOP = 46, TRAFFIC = 120, CAPACITY = 84, GAP = 34, BOTTOM = 24;
const STEPS = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 21600, 43200, 86400];
const MARKED = {
  paused: "warn", resumed: "plain", stalled: "bad", promoted: "good", "drain-started": "plain",
  aborted: "bad", "rolled-back": "warn", failed: "bad", completed: "good",
};
const WEIGHT = ["bad", "good", "warn", "plain"];

const SHAPES = {
  Pass: ["good", (x, y) => `M${x - 5} ${y}a5 5 0 1 0 10 0a5 5 0 1 0 -10 0Z`],
  Fail: ["bad", (x, y) => `M${x - 5} ${y - 5}L${x + 5} ${y + 5}M${x - 5} ${y + 5}L${x + 5} ${y - 5}`],
  Inconclusive: ["warn", (x, y) => `M${x} ${y - 6}L${x + 6} ${y + 5}H${x - 6}Z`],
};
const BESIDE = 13;

export function span(seconds) {
  const whole = Math.max(0, Math.round(seconds));
  if (whole < 120) return `${whole} s`;
  const minutes = Math.floor(whole / 60);
  if (minutes < 120) return whole % 60 && minutes < 20 ? `${minutes} min ${whole % 60} s` : `${minutes} min`;
  const hours = Math.floor(minutes / 60);
  return hours < 48 ? `${hours} h ${minutes % 60} min` : `${Math.floor(hours / 24)} d`;
}

export function clock(moment) {
  return new Date(moment).toLocaleTimeString([], { hour: "2-digit", minute: "2-digit", second: "2-digit", hour12: false });
}

function shape(name, attributes, text) {
  const found = document.createElementNS(SPACE, name);
  for (const [key, value] of Object.entries(attributes)) found.setAttribute(key, String(value));
  if (text !== undefined) found.textContent = text;
  return found;
}

export class Chart {
  constructor(holder, readout) {
    this.readout = readout;
    this.holder = holder;
    this.svg = shape("svg", { role: "img", tabindex: 0 });
    holder.replaceChildren(this.svg);
    this.timeline = null;
    this.at = null;
    this.svg.addEventListener("pointermove", (event) => this.point(event));
    this.svg.addEventListener("pointerleave", () => this.read(null));
    this.svg.addEventListener("blur", () => this.read(null));
    this.svg.addEventListener("keydown", (event) => this.press(event));
    new ResizeObserver(() => this.draw()).observe(holder);
  }

  show(timeline) {
    if (timeline?.id !== this.timeline?.id) this.read(null);
    this.timeline = timeline;
    this.draw();
  }

  draw() {
    const timeline = this.timeline, width = this.holder.clientWidth;
    if (!timeline || width < 50) return;
    this.points = timeline.points.map((each) => ({ ...each, at: Date.parse(each.at) }));
    this.began = Math.min(Date.parse(timeline.began), ...this.points.map((each) => each.at), ...timeline.verdicts.map((each) => Date.parse(each.at)));
    const last = timeline.lines.length ? Date.parse(timeline.lines.at(-1).at) : this.began;
    this.until = Math.max(timeline.ended ? Date.parse(timeline.ended) : Date.now(), last, this.began + 1000);
    const hasCapacity = this.points.some((each) => each.old.capacity !== null || each.new.capacity !== null);
    this.bottom = TOP + TRAFFIC + (hasCapacity ? GAP + CAPACITY : 0);
    this.width = width;
    this.svg.setAttribute("viewBox", `0 0 ${width} ${this.bottom + BOTTOM}`);
    this.svg.setAttribute("aria-label", this.summary());
    this.svg.replaceChildren(...this.legend(), ...this.ticks(), ...this.marks());
    this.panel("Traffic", "traffic", TOP, TRAFFIC);
    this.svg.append(...this.verdicts());
    if (hasCapacity) this.panel("Target capacity", "capacity", TOP + TRAFFIC + GAP, CAPACITY);
    this.cursor = shape("line", { class: "cursor", y1: TOP, y2: this.bottom, visibility: "hidden" });
    this.svg.append(this.cursor);
    if (this.at !== null) this.read(this.at);
  }

  x(moment) {
    return LEFT + ((this.width - LEFT - RIGHT) * (moment - this.began)) / (this.until - this.began);
  }

  summary() {
    const { old, new: fresh, points } = this.timeline, last = points.at(-1);
    if (!last) return "Nothing has moved yet.";
    return `Traffic and capacity from ${clock(this.began)} to ${clock(this.until)}: now ${old || "no old cluster"} has ` +
      `${percent(last.old.traffic)} and ${fresh} ${percent(last.new.traffic)} of the traffic. Arrow keys read the points; the table below has them all.`;
  }

  legend() {
    const start = LEFT + 78, half = (this.width - start) / 2, most = Math.max(6, Math.floor((half - 44) / 7.4));
    const parts = [shape("text", { class: "title", x: LEFT, y: 13 }, "Traffic")];
    [["old", this.timeline.old], ["new", this.timeline.new]].filter(([, name]) => name).forEach(([side, name], index) => {
      const x = start + index * half;
      parts.push(shape("path", { class: side, d: `M${x} 9H${x + 26}` }));
      const label = shape("text", { class: side, x: x + 32, y: 13 }, short(name, most));
      label.append(shape("title", {}, name));
      parts.push(label);
    });
    return parts;
  }

  ticks() {
    const seconds = (this.until - this.began) / 1000, room = Math.max(2, Math.floor((this.width - LEFT - RIGHT) / 90));
    const step = STEPS.find((each) => seconds / each <= room) ?? 86400 * Math.ceil(seconds / 86400 / room), parts = [];
    for (let each = 0; each <= seconds; each += step) {
      const x = this.x(this.began + each * 1000);
      parts.push(shape("line", { class: "grid", x1: x, x2: x, y1: TOP, y2: this.bottom }));
      parts.push(shape("text", { x, y: this.bottom + 17, "text-anchor": each ? "middle" : "start" }, each ? `+${span(each)}` : clock(this.began)));
    }
    return parts;
  }

  /** Lines at events; of labels without room beside each other, the more severe ones stay. */
  marks() {
    const parts = [], levels = [[], []];
    const marked = this.timeline.lines.filter((each) => MARKED[each.kind] !== undefined);
    marked.sort((one, other) => WEIGHT.indexOf(MARKED[one.kind]) - WEIGHT.indexOf(MARKED[other.kind]));
    for (const each of marked) {
      const severity = MARKED[each.kind], x = this.x(Date.parse(each.at)), label = each.kind.replace("-", " ");
      const wide = label.length * 6.8 + 4, isRight = x + wide > this.width - 2, left = isRight ? x - wide : x;
      parts.push(shape("line", { class: `event ${severity}`, x1: x, x2: x, y1: TOP - 4, y2: this.bottom }));
      const level = levels.findIndex((taken) => taken.every(([from, to]) => left > to + 6 || left + wide < from - 6));
      if (level < 0) continue;
      levels[level].push([left, left + wide]);
      parts.push(shape("text", { class: severity, x, y: TOP - 7 - level * 12, "text-anchor": isRight ? "end" : "start" }, label));
    }
    return parts;
  }

  /** Points at verdicts of gates, on the new cluster's weight; of several at a place each next one is above, below the top. */
  verdicts() {
    const placed = [];
    return this.timeline.verdicts.map((each) => {
      const [severity, outline] = SHAPES[each.outcome] ?? SHAPES.Inconclusive;
      const x = this.x(Date.parse(each.at)), level = TOP + TRAFFIC - (TRAFFIC * each.weight) / 100, step = level - 4 * BESIDE > TOP ? -BESIDE : BESIDE;
      let y = level;
      while (placed.some(([left, top]) => Math.abs(left - x) < BESIDE && Math.abs(top - y) < BESIDE)) y += step;
      placed.push([x, y]);
      const point = shape("path", { class: `verdict ${severity}`, d: outline(x, y) });
      point.append(shape("title", {}, `${each.outcome}: ${each.text}`));
      return point;
    });
  }

  panel(title, field, top, height) {
    const values = this.points.flatMap((each) => [each.old[field], each.new[field]]).filter((each) => each !== null);
    const y = (value) => top + height - (height * value) / Math.max(100, ...values);
    for (const each of [0, 50, 100]) {
      this.svg.append(shape("line", { class: each ? "grid" : "axis", x1: LEFT, x2: this.width - RIGHT, y1: y(each), y2: y(each) }));
      this.svg.append(shape("text", { x: LEFT - 6, y: y(each) + 4, "text-anchor": "end" }, `${each} %`));
    }
    if (top > TOP) this.svg.append(shape("text", { class: "title", x: LEFT, y: top - 9 }, title));
    const right = this.x(this.until), ends = [];
    for (const side of ["old", "new"]) {
      const known = this.points.filter((each) => each[side][field] !== null);
      if (!known.length) continue;
      const path = known.map((each, index) => `${index ? "H" : "M"}${this.x(each.at).toFixed(1)}${index ? "V" : " "}${y(each[side][field]).toFixed(1)}`).join("") + `H${right}`;
      if (side === "new" && field === "traffic") this.svg.append(shape("path", { class: "area", d: `${path}V${y(0)}H${this.x(known[0].at).toFixed(1)}Z` }));
      this.svg.append(shape("path", { class: side, d: path }));
      ends.push({ side, value: known.at(-1)[side][field], y: y(known.at(-1)[side][field]) + 4 });
    }
    if (ends.length === 2 && Math.abs(ends[0].y - ends[1].y) < 13) {
      const [high, low] = ends[0].y <= ends[1].y ? ends : [ends[1], ends[0]];
      if (high.y - 7 > top) high.y -= 7; else low.y += 6;
      low.y = Math.max(low.y, high.y + 13);
    }
    for (const each of ends) this.svg.append(shape("text", { class: each.side, x: right + 5, y: each.y }, `${each.value} %`));
  }

  point(event) {
    const box = this.svg.getBoundingClientRect();
    if (!this.timeline || !box.width) return;
    const x = ((event.clientX - box.left) * this.width) / box.width;
    const part = Math.min(1, Math.max(0, (x - LEFT) / (this.width - LEFT - RIGHT)));
    this.read(this.began + part * (this.until - this.began));
  }

  press(event) {
    const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (step === undefined || !this.points?.length) return;
    event.preventDefault();
    const held = this.at === null ? (step > 0 ? -1 : this.points.length) : this.points.findLastIndex((each) => each.at <= this.at);
    this.read(this.points[Math.min(this.points.length - 1, Math.max(0, held + step))].at);
  }

  read(moment) {
    this.at = moment;
    const found = moment === null ? null : this.points?.findLast((each) => each.at <= moment);
    this.cursor?.setAttribute("visibility", found ? "visible" : "hidden");
    if (!found) {
      this.readout.textContent = "";
      return;
    }
    for (const each of ["x1", "x2"]) this.cursor.setAttribute(each, this.x(moment));
    const sides = [[this.timeline.old, found.old], [this.timeline.new, found.new]].filter(([name]) => name);
    const values = sides.map(([name, part]) => `${name}: traffic ${percent(part.traffic)}` + (part.capacity === null ? "" : `, capacity ${percent(part.capacity)}`));
    this.readout.textContent = `${clock(moment)} (+${span((moment - this.began) / 1000)}) ${values.join("; ")}`;
  }
}

export function percent(amount) {
  return amount === null || amount === undefined ? "?" : `${amount} %`;
}

function short(name, most) {
  return name.length <= most ? name : `…${name.slice(1 - most)}`;
}
