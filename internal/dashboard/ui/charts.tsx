// Charts of values over time (uPlot), with the same values as a table for screen readers.
import { useEffect, useRef, useState } from "preact/hooks";
import type uPlot from "uplot";
import { downloadCSV } from "./csv";
import { moment, short } from "./format";
import { theme } from "./theme";

export type Values = { name: string; values: number[]; colour: number };

const css = (name: string) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

/** timeLabel returns the time of day, or the date at the start of a day. */
function timeLabel(seconds: number, before: number | undefined): string {
  const at = new Date(seconds * 1000);
  const day = at.toLocaleDateString("en-GB", { day: "numeric", month: "short" });
  if (at.getHours() === 0 && at.getMinutes() === 0) return day;
  const time = at.toLocaleTimeString("en-GB", { hour: "2-digit", minute: "2-digit" });
  return before === undefined && new Date().toDateString() !== at.toDateString() ? time + "\n" + day : time;
}

/** retryAfter is the delay in milliseconds before uPlot is loaded again if the server could not be reached. */
const retryAfter = 2000;

/** usePlot loads uPlot, which is not part of the first load. */
function usePlot(): typeof uPlot | undefined {
  const [plot, setPlot] = useState<typeof uPlot>();
  useEffect(() => {
    let timer: ReturnType<typeof setTimeout>;
    const load = () =>
      import("uplot").then(
        (m) => setPlot(() => m.default),
        () => (timer = setTimeout(load, retryAfter)),
      );
    void load();
    return () => clearTimeout(timer);
  }, []);
  return plot;
}

/** stepOf returns the time between two values, or an hour if there is only one value. */
const stepOf = (at: number[]) => at.reduce((step, t, i) => (i > 0 ? Math.min(step, t - at[i - 1]!) : step), at.length > 1 ? Infinity : 3600);

/** newOptions returns the settings of a chart, with the colours of the theme. */
function newOptions(bars: (line: number) => uPlot.Series.PathBuilder, lines: Values[], width: number, height: number): uPlot.Options {
  const axis = { stroke: css("--muted"), grid: { stroke: css("--border"), width: 1 }, ticks: { show: false }, font: "11px system-ui, sans-serif" };
  return {
    width,
    height,
    padding: [8, 24, 0, 0],
    legend: { show: false },
    cursor: { y: false, drag: { x: false, y: false } },
    scales: { x: { range: (u, min, max) => [min, max + stepOf(u.data[0] as number[])] }, y: { range: (_, __, max) => [0, Math.max(max * 1.1, 4)] } },
    axes: [
      { ...axis, grid: { show: false }, space: 72, values: (_, ticks) => ticks.map((t, i) => timeLabel(t, ticks[i - 1])) },
      { ...axis, size: 48, values: (_, ticks) => ticks.map((t) => (Number.isInteger(t) ? short(t) : "")) },
    ],
    series: [{}, ...lines.map((l, i) => ({ label: l.name, fill: css("--c" + l.colour), width: 0, points: { show: false }, paths: bars(i) }))],
  };
}

/** Series draws bars over time. Its times are the starts of the steps, in seconds since 1970. */
export function Series(p: { label: string; at: number[]; lines: Values[]; height?: number }) {
  const box = useRef<HTMLDivElement>(null);
  const chart = useRef<uPlot>(undefined);
  const [open, setOpen] = useState(false);
  const Plot = usePlot();
  const look = theme();
  const height = p.height ?? 160;
  const data = [p.at, ...p.lines.map((l) => l.values)] as uPlot.AlignedData;
  const names = p.lines.map((l) => l.name).join();

  useEffect(() => {
    const element = box.current!;
    if (!Plot) return;
    const bars = (i: number) => Plot.paths.bars!({ size: [i ? 0.4 : 0.8, 40], align: 1 });
    chart.current = new Plot(newOptions(bars, p.lines, element.clientWidth, height), data, element);
    const resize = new ResizeObserver(() => element.clientWidth && chart.current?.setSize({ width: element.clientWidth, height }));
    resize.observe(element);
    return () => {
      resize.disconnect();
      chart.current?.destroy();
      chart.current = undefined;
    };
  }, [Plot, look, names, height]);
  useEffect(() => chart.current?.setData(data), [p.at, ...p.lines.map((l) => l.values)]);

  return (
    <figure class="stack tight">
      <div ref={box} aria-hidden="true" style={{ height }} />
      <figcaption class="row">
        {p.lines.map((l) => (
          <span key={l.name} class="faint row">
            <span aria-hidden="true" class="swatch" style={{ background: `var(--c${l.colour})` }} /> {l.name} {short(l.values.reduce((a, b) => a + b, 0))}
          </span>
        ))}
      </figcaption>
      <details onToggle={(e) => setOpen(e.currentTarget.open)}>
        <summary class="faint">As a table</summary>
        {open && <Table {...p} />}
      </details>
    </figure>
  );
}

/** Table shows the values of a chart and can save them as CSV. */
function Table(p: { label: string; at: number[]; lines: Values[] }) {
  const save = () =>
    downloadCSV(
      p.label.toLowerCase().replaceAll(" ", "-") + ".csv",
      ["time", ...p.lines.map((l) => l.name)],
      p.at.map((at, i) => [new Date(at * 1000).toISOString(), ...p.lines.map((l) => l.values[i])]),
    );
  return (
    <>
      <div class="row end">
        <button class="quiet" aria-label={p.label + " as CSV"} onClick={save}>
          CSV
        </button>
      </div>
      <div class="table scroll" tabIndex={0} role="region" aria-label={p.label}>
        <table aria-label={p.label}>
          <thead>
            <tr>
              <th scope="col">Time</th>
              {p.lines.map((l) => (
                <th scope="col" class="number" key={l.name}>
                  {l.name}
                </th>
              ))}
            </tr>
          </thead>
          <tbody>
            {p.at.map((at, i) => (
              <tr key={at}>
                <th scope="row">{moment(new Date(at * 1000).toISOString())}</th>
                {p.lines.map((l) => (
                  <td class="number" key={l.name}>
                    {l.values[i]}
                  </td>
                ))}
              </tr>
            ))}
          </tbody>
        </table>
      </div>
    </>
  );
}
