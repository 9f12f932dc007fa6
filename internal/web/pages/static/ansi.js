// Does what internal/web/ansi does, for lines that arrive while the page is open:
// colours become classes, and every other command to a terminal is left out.

const styles = { 1: "bold", 2: "faint", 3: "italic", 4: "under", 7: "invert", 9: "cross" };
const ends = { 22: ["bold", "faint"], 23: ["italic"], 24: ["under"], 27: ["invert"], 29: ["cross"] };
const order = ["bold", "faint", "italic", "under", "invert", "cross"];
const palette = [
  [0, 0, 0], [205, 49, 49], [13, 188, 121], [229, 229, 16], [36, 114, 200], [188, 63, 188], [17, 168, 205], [229, 229, 229],
  [102, 102, 102], [241, 76, 76], [35, 209, 139], [245, 245, 67], [59, 142, 234], [214, 112, 214], [41, 184, 219], [255, 255, 255],
];

// plainPen is the style of text without commands. Pens are never changed, only replaced.
export const plainPen = Object.freeze({ fore: -1, back: -1, on: "" });

// eslint-disable-next-line no-control-regex
const special = /[\x00-\x08\x0a-\x1f\x7f-\x9f]/;
// eslint-disable-next-line no-control-regex
const sequence = /^(?:\x1b\[|\x9b)([0-?]*)([ -/]*)([@-~])/;
// eslint-disable-next-line no-control-regex
const other = /^\x1b[ -/]+[0-~]?|^\x1b[0-OQ-WYZ\\`-~]|^(?:\x1b[\[\]PX^_])|^[^]/;
const turns = /[\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]/g;
const longest = 16384;

// runs splits one line into pieces of the same style, and returns the pen that
// the next line begins with.
export function runs(line, pen) {
  const out = [];
  let text = line.replace(/[\r\n]+$/, "");
  const cut = text.length > longest;
  if (cut) text = text.slice(0, longest);
  const overwritten = text.lastIndexOf("\r");
  let rest = text;
  let at = 0;
  while (rest) {
    const i = rest.search(special);
    const plain = i < 0 ? rest : rest.slice(0, i);
    if (plain && at > overwritten) out.push({ classes: classes(pen), text: plain.replace(turns, "\ufffd") });
    rest = rest.slice(plain.length);
    at += plain.length;
    if (!rest) break;
    const found = rest.match(sequence);
    if (found && found[3] === "m" && !found[2] && !/[<=>?]/.test(found[1])) pen = colour(pen, found[1]);
    const n = found ? found[0].length : stringLength(rest) || rest.match(other)[0].length;
    rest = rest.slice(n);
    at += n;
  }
  if (cut) out.push({ classes: "", text: "…" });
  return { runs: out, pen };
}

// stringLength is the length of a string for the terminal, 0 if rest begins with
// none that ends.
function stringLength(rest) {
  const intro = /^(?:\x1b([\]PX^_])|([\x9d\x90\x98\x9e\x9f]))/.exec(rest); // eslint-disable-line no-control-regex
  if (!intro) return 0;
  const bell = intro[1] === "]" || intro[2] === "\x9d";
  const end = (bell ? /\x07|\x1b\\|\x9c/ : /\x1b\\|\x9c/).exec(rest.slice(intro[0].length)); // eslint-disable-line no-control-regex
  return end ? intro[0].length + end.index + end[0].length : 0;
}

function classes(pen) {
  const list = pen.on ? pen.on.split(" ").map((s) => `a-${s}`) : [];
  if (pen.fore >= 0) list.push(`a-f${pen.fore}`);
  if (pen.back >= 0) list.push(`a-b${pen.back}`);
  return list.join(" ");
}

function colour(pen, params) {
  let { fore, back } = pen;
  const on = new Set(pen.on ? pen.on.split(" ") : []);
  const list = numbers(params);
  for (let i = 0; i < list.length; i++) {
    const n = list[i];
    if (n === 38 || n === 48) {
      const [c, used] = wide(list.slice(i + 1));
      i += used;
      if (c >= 0 && n === 38) fore = c;
      else if (c >= 0) back = c;
    } else if (n >= 30 && n <= 37) fore = n - 30;
    else if (n >= 90 && n <= 97) fore = n - 82;
    else if (n >= 40 && n <= 47) back = n - 40;
    else if (n >= 100 && n <= 107) back = n - 92;
    else if (n === 39) fore = -1;
    else if (n === 49) back = -1;
    else if (n === 0) [fore, back] = (on.clear(), [-1, -1]);
    else if (styles[n]) on.add(styles[n]);
    else for (const s of ends[n] ?? []) on.delete(s);
  }
  return { fore, back, on: order.filter((s) => on.has(s)).join(" ") };
}

function numbers(params) {
  const out = [];
  for (const part of params.split(";")) {
    const subs = part.split(":");
    if (subs.length > 1 && subs[0] === "4") out.push(subs[1] === "0" ? 24 : 4);
    else {
      if (subs.length === 6 && subs[1] === "2") subs.splice(2, 1);
      for (const s of subs) out.push(s === "" ? 0 : Number(s) <= 255 ? Number(s) : -1);
    }
  }
  return out.slice(0, 32);
}

function wide(list) {
  if (list[0] === 5 && list.length > 1) return [list[1] < 0 ? -1 : indexed(list[1]), 2];
  if (list[0] === 2 && list.length > 3) return [nearest(list[1], list[2], list[3]), 4];
  return [-1, list.length];
}

function indexed(n) {
  if (n < 16) return n;
  if (n >= 232) return nearest(...Array(3).fill((n - 232) * 10 + 8));
  const level = (v) => (v === 0 ? 0 : 55 + 40 * v);
  const m = n - 16;
  return nearest(level(Math.floor(m / 36)), level(Math.floor(m / 6) % 6), level(m % 6));
}

function nearest(r, g, b) {
  let best = 0;
  let far = Infinity;
  palette.forEach((c, i) => {
    const d = (c[0] - r) ** 2 + (c[1] - g) ** 2 + (c[2] - b) ** 2;
    if (d < far) [best, far] = [i, d];
  });
  return best;
}
