// Plots of the last hour: plain SVG, with the numbers beside it as text.

import { el, clock, count, rate, tone } from "./format.js";

const WIDTH = 600, HEIGHT = 60, LONGEST_S = 3600, SHORTEST_S = 300;
let spanS = LONGEST_S;

function svg(tag, given) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(given)) made.setAttribute(name, value);
  return made;
}

function canvas(height, label) {
  return svg("svg", { viewBox: `0 0 ${WIDTH} ${height}`, preserveAspectRatio: "none", role: "img", "aria-label": label });
}

/** Points of a curve; where a value is unknown it has a gap. */
function path(samples, name, from, top) {
  let text = "", isDown = false;
  for (const each of samples) {
    const value = each[name];
    if (value === null || value === undefined) { isDown = false; continue; }
    const x = ((each.at - from) / spanS) * WIDTH, y = HEIGHT - 2 - (value / top) * (HEIGHT - 6);
    text += `${isDown ? "L" : "M"}${x.toFixed(1)} ${y.toFixed(1)}`;
    isDown = true;
  }
  return text;
}

const last = (samples, name) => { for (let at = samples.length - 1; at >= 0; at -= 1) if (samples[at][name] != null) return samples[at][name]; return null; };
const highest = (samples, names) => Math.max(1, ...samples.flatMap((each) => names.map((name) => each[name] ?? 0)));

function figure(title, shown, drawing, legend, kind = "") {
  return el("figure", { class: kind }, el("figcaption", {}, el("span", { text: title }), el("strong", { text: shown })), drawing, legend ? el("p", { class: "legend", text: legend }) : null);
}

export function draw(place, history, now) {
  const samples = Object.values(history).filter((each) => each.at >= now - LONGEST_S).sort((a, b) => a.at - b.at);
  spanS = Math.min(LONGEST_S, Math.max(SHORTEST_S, now - (samples[0]?.at ?? now)));
  const from = now - spanS;
  if (samples.length < 2) { place.replaceChildren(el("p", { class: "empty", text: "The plots begin with the second look." })); return; }

  const top = highest(samples, ["waiting"]), most = highest(samples, ["home", "primary", "backlog"]);
  const backlog = canvas(HEIGHT, `Messages in the backlog, now ${count(last(samples, "waiting"))}, at most ${count(top)}`);
  const line = path(samples, "waiting", from, top);
  const known = samples.filter((each) => each.waiting != null);
  if (known.length > 1) {
    const x = (at) => (((at - from) / spanS) * WIDTH).toFixed(1);
    backlog.append(svg("path", { class: "area", d: `${line.replace(/(?!^)M/g, "L")}L${x(known.at(-1).at)} ${HEIGHT}L${x(known[0].at)} ${HEIGHT}Z` }));
  }
  backlog.append(svg("path", { class: "curve", d: line }));

  const flow = canvas(HEIGHT, `Messages a second: home ${rate(last(samples, "home"))}, to the primary ${rate(last(samples, "primary"))}, to the backlog ${rate(last(samples, "backlog"))}`);
  flow.append(svg("path", { class: "curve second", d: path(samples, "primary", from, most) }), svg("path", { class: "curve third", d: path(samples, "backlog", from, most) }), svg("path", { class: "curve", d: path(samples, "home", from, most) }));

  const strip = canvas(20, "Verdicts of the last hour");
  let healthy = 0, span = 0;
  samples.forEach((each, at) => {
    const until = at + 1 < samples.length ? samples[at + 1].at : now, width = until - each.at;
    span += width;
    if (each.state === "healthy" || each.state === "waiting") healthy += width;
    strip.append(svg("rect", { class: tone(each.state), x: (((each.at - from) / spanS) * WIDTH).toFixed(1), y: tone(each.state) === "bad" ? 0 : 7, height: tone(each.state) === "bad" ? 20 : 13, width: ((width / spanS) * WIDTH + 0.6).toFixed(1) }));
  });
  place.replaceChildren(
    figure("Backlog", `${count(last(samples, "waiting"))} messages`, backlog, `top: ${count(top)}; since ${clock(Math.max(from, samples[0].at), false)}`),
    figure("Throughput", `home ${rate(last(samples, "home"))}`, flow, `solid: brought home; dashed: sent to the primary, ${rate(last(samples, "primary"))}; dotted: to the backlog, ${rate(last(samples, "backlog"))}; top: ${rate(most)}`),
    figure("Primary works", `${((healthy / span) * 100).toFixed(1)} % of ${Math.max(1, Math.round(span / 60))} min`, strip, "high: failing or failed over; low: it works", "strip"),
  );
}
