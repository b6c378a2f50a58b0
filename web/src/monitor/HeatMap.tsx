// Layers by time: how many of each layer's picks were hits; where nobody counts hits, how much was read.
import { useEffect, useRef, useState } from 'preact/hooks';
import { bytes, percent } from '../lib/format.ts';
import { colour, theme } from '../lib/theme.ts';
import { useStore } from '../lib/store.ts';
import type { History } from './history.ts';
import { layerCells, type LayerCell, type Moment } from './sample.ts';

interface Column {
  begin: number;
  end: number;
  cells: LayerCell[];
}

const left = 40; // px for the layers' numbers
const bottom = 22;

function rgb(text: string): [number, number, number] {
  const n = text.match(/[\d.]+/g)?.map(Number) ?? [];
  return [n[0] ?? 0, n[1] ?? 0, n[2] ?? 0];
}

/** Low to high over three colours. Shares near 1 get most of the room: there the differences are. */
function scale(): (share: number) => string {
  const stops = ['--heat-low', '--heat-mid', '--heat-high'].map((name) => rgb(colour(name)));
  return (share) => {
    const at = Math.min(Math.max(share, 0), 1) * 2;
    const a = stops[Math.min(Math.floor(at), 1)]!;
    const b = stops[Math.min(Math.floor(at), 1) + 1]!;
    const t = at - Math.min(Math.floor(at), 1);
    return `rgb(${a.map((v, i) => Math.round(v + (b[i]! - v) * t)).join(' ')})`;
  };
}

function columns(history: History, window: number): Column[] {
  const out: Column[] = [];
  for (const step of history.steps(window, 120)) {
    if (step) out.push({ begin: step[0].time, end: step[1].time, cells: layerCells(step[0], step[1]) });
  }
  return out;
}

export function HeatMap({ history, window, sample }: { history: History; window: number; sample: Moment }) {
  const canvas = useRef<HTMLCanvasElement>(null);
  const holder = useRef<HTMLDivElement>(null);
  const [width, setWidth] = useState(0);
  const [point, setPoint] = useState<{ x: number; y: number } | null>(null);
  useStore(theme);
  const layers = sample.layers.ids;
  const counted = sample.layers.hits.length > 0;
  const row = Math.max(4, Math.min(14, Math.floor(300 / Math.max(layers.length, 1))));
  const height = row * layers.length + bottom;
  const drawn = columns(history, window);
  const most = drawn.reduce((a, c) => c.cells.reduce((b, cell) => Math.max(b, cell.bytes), a), 1);
  const end = sample.time;
  const xOf = (time: number) => left + ((time - end + window) / window) * (width - left);

  useEffect(() => {
    const observer = new ResizeObserver((entries) => setWidth(Math.floor(entries[0]!.contentRect.width)));
    observer.observe(holder.current!);
    return () => observer.disconnect();
  }, []);

  useEffect(() => {
    const element = canvas.current!;
    const dense = devicePixelRatio || 1;
    element.width = width * dense;
    element.height = height * dense;
    const g = element.getContext('2d');
    if (!g || width === 0) return;
    g.scale(dense, dense);
    const paint = scale();
    g.fillStyle = colour('--sunken');
    g.fillRect(left, 0, width - left, height - bottom);
    for (const column of drawn) {
      const x = Math.max(xOf(column.begin), left);
      const w = Math.max(xOf(column.end) - x, 1) + 0.5;
      column.cells.forEach((cell, i) => {
        if (counted ? Number.isNaN(cell.hit) : cell.bytes === 0) return;
        g.fillStyle = paint(counted ? cell.hit : 1 - cell.bytes / most);
        g.fillRect(x, i * row, w, row > 5 ? row - 0.5 : row);
      });
    }
    g.fillStyle = colour('--muted');
    g.font = `12px ${getComputedStyle(document.body).fontFamily}`;
    g.textAlign = 'right';
    g.textBaseline = 'middle';
    const every = Math.max(1, Math.ceil(18 / row));
    layers.forEach((layer, i) => i % every === 0 && g.fillText(String(layer), left - 8, i * row + Math.max(row / 2, 6)));
    g.textBaseline = 'alphabetic';
    const clock = new Intl.DateTimeFormat(undefined, { hour: '2-digit', minute: '2-digit', second: '2-digit', hourCycle: 'h23' });
    for (const [share, align] of [[0, 'left'], [0.5, 'center'], [1, 'right']] as const) {
      g.textAlign = align;
      g.fillText(clock.format((end - window + share * window) * 1000), left + share * (width - left), height - 5);
    }
  });

  const under = () => {
    if (!point) return null;
    const at = Math.floor(point.y / row);
    const column = drawn.find((c) => point.x >= xOf(c.begin) && point.x < xOf(c.end));
    const cell = column?.cells[at];
    if (!column || !cell) return null;
    const what = counted ? (cell.looked > 0 ? `${percent(cell.hit)} of ${cell.looked.toLocaleString('en')} picked` : 'nothing picked') : '';
    const read = cell.bytes > 0 ? `${bytes(cell.bytes)} read` : '';
    return `Layer ${layers[at]}: ${[what, read].filter(Boolean).join(', ')}`;
  };
  const tip = under();
  return (
    <div class="heat" ref={holder}>
      <canvas
        ref={canvas}
        style={`width:100%;height:${height}px`}
        role="img"
        aria-label={counted ? 'Share of hits by layer and time; the table below has the totals' : 'Bytes read by layer and time'}
        onPointerMove={(event) => setPoint({ x: event.offsetX, y: event.offsetY })}
        onPointerLeave={() => setPoint(null)}
      />
      {tip && point && (
        <div class="tip small number" style={`left:${Math.min(point.x + 14, Math.max(width - 230, 0))}px;top:${point.y + 14}px`}>
          {tip}
        </div>
      )}
      <div class="row small muted heat-key">
        {counted ? 'none hit' : 'much read'}
        <i class="ramp" />
        {counted ? 'all hit' : 'little'}
      </div>
    </div>
  );
}

/** The same as numbers, since the server's start. */
export function LayerTable({ sample }: { sample: Moment }) {
  const layers = sample.layers.ids;
  const counted = sample.layers.hits.length > 0;
  return (
    <details class="more">
      <summary>Totals by layer</summary>
      <div class="scroll" tabIndex={0}>
        <table>
          <thead>
            <tr>
              <th>Layer</th>
              {counted && <th>Hits</th>}
              {counted && <th>Misses</th>}
              {counted && <th>Hit</th>}
              <th>Read</th>
            </tr>
          </thead>
          <tbody>
            {layers.map((layer, i) => {
              const hits = sample.layers.hits[i] ?? 0;
              const misses = sample.layers.misses[i] ?? 0;
              return (
                <tr key={layer}>
                  <th>{layer}</th>
                  {counted && <td>{hits.toLocaleString('en')}</td>}
                  {counted && <td>{misses.toLocaleString('en')}</td>}
                  {counted && <td>{hits + misses > 0 ? percent(hits / (hits + misses)) : '–'}</td>}
                  <td>{bytes(sample.layers.bytes[i] ?? 0)}</td>
                </tr>
              );
            })}
          </tbody>
        </table>
      </div>
    </details>
  );
}
