// Numbers as people read them.

/** Three digits or so: 1234 -> "1,234", 38.24 -> "38.2", 0.1234 -> "0.12". */
export function number(value: number): string {
  if (!Number.isFinite(value)) return '–';
  const size = Math.abs(value);
  if (size >= 100 || Number.isInteger(value)) return Math.round(value).toLocaleString('en');
  return value.toFixed(size >= 10 ? 1 : 2);
}

const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB'];
export function bytes(value: number): string {
  if (!Number.isFinite(value)) return '–';
  let unit = 0;
  while (Math.abs(value) >= 1024 && unit + 1 < units.length) {
    value /= 1024;
    unit += 1;
  }
  return `${unit === 0 || Math.abs(value) >= 100 ? Math.round(value) : value.toFixed(Math.abs(value) >= 10 ? 1 : 2)} ${units[unit]}`;
}

/** A span of time: "80 µs", "3.4 ms", "340 ms", "2.4 s", "3 min 20 s", "2 h 5 min". */
export function seconds(value: number): string {
  if (!Number.isFinite(value)) return '–';
  if (value === 0) return '0 ms';
  if (value < 0.0009995) return `${Math.round(value * 1e6)} µs`;
  if (value < 0.00995) return `${(value * 1000).toFixed(1)} ms`;
  if (value < 0.995) return `${Math.round(value * 1000)} ms`;
  if (value < 59.95) return `${value.toFixed(value < 9.95 ? 1 : 0)} s`;
  const whole = Math.round(value);
  if (whole < 3600) return `${Math.floor(whole / 60)} min ${whole % 60} s`;
  return `${Math.floor(whole / 3600)} h ${Math.floor((whole % 3600) / 60)} min`;
}

export function percent(part: number): string {
  if (!Number.isFinite(part)) return '–';
  const value = part * 100;
  return `${value > 0 && value < 99.95 && value >= 0.05 ? value.toFixed(1) : Math.round(value)} %`;
}

export function plural(n: number, one: string, many = one + 's'): string {
  return `${n.toLocaleString('en')} ${n === 1 ? one : many}`;
}
