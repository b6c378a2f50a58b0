// A value that components watch.
import { useEffect, useReducer } from 'preact/hooks';

export class Store<T> {
  private watchers = new Set<() => void>();
  constructor(public value: T) {}
  set(value: T): void {
    this.value = value;
    this.changed();
  }
  /** Something inside the value is different. */
  changed(): void {
    for (const watcher of [...this.watchers]) watcher();
  }
  watch(watcher: () => void): () => void {
    this.watchers.add(watcher);
    return () => this.watchers.delete(watcher);
  }
}

/** The store's value; the component is drawn again whenever it changes. */
export function useStore<T>(store: Store<T>): T {
  const [, draw] = useReducer((n: number) => n + 1, 0);
  useEffect(() => store.watch(() => draw(undefined)), [store]);
  return store.value;
}
