// A chart of lines or stacked bars over time, by uPlot, with its legend as HTML.
import uPlot from 'uplot';
import 'uplot/dist/uPlot.min.css';
import { useEffect, useRef, useState } from 'preact/hooks';
import { colour, theme } from '../lib/theme.ts';
import { useStore } from '../lib/store.ts';

export interface Line {
  label: string;
  colour: string; // a custom property
  values: (number | null)[];
  hint?: string;
}

interface Props {
  title: string;
  times: number[];
  lines: Line[];
  format: (value: number) => string;
  /** Bars that stand on each other. */
  stacked?: boolean;
  /** Steps of the axis are powers of two. */
  binary?: boolean;
  max?: number;
  window: number; // seconds
  end: number;
  height?: number;
}

const powers = Array.from({ length: 50 }, (_, i) => 2 ** i);

const together = uPlot.sync('monitor');

/** Each line's values on top of those before it. */
function stack(lines: Line[]): (number | null)[][] {
  const out: (number | null)[][] = [];
  for (const line of lines) {
    const below = out.at(-1);
    out.push(line.values.map((v, i) => (v === null ? null : v + (below?.[i] ?? 0))));
  }
  return out;
}

function options(props: Props, width: number, height: number, onPoint: (at: number | null) => void): uPlot.Options {
  const muted = colour('--muted');
  const font = `12px ${getComputedStyle(document.body).fontFamily}`;
  const grid = { stroke: colour('--grid'), width: 1 };
  const axis = { stroke: muted, font, grid, ticks: { ...grid, size: 4 } };
  const clock = new Intl.DateTimeFormat(undefined, { hour: '2-digit', minute: '2-digit', second: '2-digit', hourCycle: 'h23' });
  const order = props.stacked ? [...props.lines].reverse() : props.lines;
  return {
    width,
    height,
    padding: [8, 26, 0, 0],
    legend: { show: false },
    cursor: { sync: { key: together.key, setSeries: false }, drag: { x: false, y: false }, y: false, points: { show: !props.stacked } },
    scales: {
      x: { time: false },
      y: { range: (_, __, high) => [0, props.max ?? (high > 0 ? high * 1.08 : 1)] },
    },
    axes: [
      { ...axis, size: 30, space: 90, values: (_, ticks) => ticks.map((t) => clock.format(t * 1000)) },
      {
        ...axis,
        size: props.binary ? 82 : 62,
        space: 34,
        incrs: props.binary ? powers : undefined,
        values: (_, ticks) => ticks.map((t) => props.format(t).replace(/\.0+(?=\D|$)/, '')),
      },
    ],
    series: [
      {},
      ...order.map((line): uPlot.Series => {
        const paint = colour(line.colour);
        return props.stacked
          ? { label: line.label, fill: paint, stroke: paint, width: 0, paths: uPlot.paths.bars!({ size: [0.82, 26] }), points: { show: false } }
          : { label: line.label, stroke: paint, width: 2, points: { show: false }, spanGaps: false };
      }),
    ],
    hooks: { setCursor: [(u) => onPoint(u.cursor.idx ?? null)] },
  };
}

export function Chart(props: Props) {
  const holder = useRef<HTMLDivElement>(null);
  const plot = useRef<uPlot | null>(null);
  const [at, setAt] = useState<number | null>(null);
  const [width, setWidth] = useState(0);
  useStore(theme);
  const dark = colour('--text');
  const height = props.height ?? 170;
  const shape = props.lines.map((l) => l.label).join('|');

  useEffect(() => {
    const observer = new ResizeObserver((entries) => setWidth(Math.floor(entries[0]!.contentRect.width)));
    observer.observe(holder.current!);
    return () => observer.disconnect();
  }, []);

  useEffect(() => {
    if (width === 0) return;
    plot.current = new uPlot(options(props, width, height, setAt), [[], ...props.lines.map(() => [])], holder.current!);
    together.sub(plot.current);
    return () => {
      if (plot.current) together.unsub(plot.current);
      plot.current?.destroy();
      plot.current = null;
    };
  }, [width > 0, shape, dark, props.stacked, props.max]);

  useEffect(() => {
    if (plot.current && width > 0) plot.current.setSize({ width, height });
  }, [width, height]);

  useEffect(() => {
    const values = props.stacked ? stack(props.lines).reverse() : props.lines.map((l) => l.values);
    plot.current?.batch((u: uPlot) => {
      u.setData([props.times, ...values] as uPlot.AlignedData, false);
      u.setScale('x', { min: props.end - props.window, max: props.end });
    });
  });

  const shown = at !== null && at < props.times.length ? at : null;
  const last = (values: (number | null)[]) => values.at(shown ?? -1) ?? null;
  return (
    <figure class="chart">
      <figcaption class="legend small">
        {props.lines.map((line) => {
          const value = last(line.values);
          return (
            <span key={line.label} class="legend-item" title={line.hint}>
              <i class="swatch" style={`background:var(${line.colour})`} />
              {line.label}
              <b class="number">{value === null ? '–' : props.format(value)}</b>
            </span>
          );
        })}
      </figcaption>
      <div ref={holder} class="plot" style={`height:${height}px`} role="img" aria-label={props.title} />
    </figure>
  );
}
