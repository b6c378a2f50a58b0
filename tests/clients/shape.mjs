// What answers and events look like, in the language of src/base/json_shape.h: an object has at least the shape's keys (one that ends
// with ? may be absent), an array's elements all look like the shape's only one, a text names kinds with | between, or =TEXT.
import assert from 'node:assert/strict';

function is(value, kind) {
  if (kind.startsWith('=')) return value === kind.slice(1);
  switch (kind) {
    case 'any': return true;
    case 'int': return Number.isInteger(value);
    case 'bool': return typeof value === 'boolean';
    case 'null': return value === null;
    case 'object': return typeof value === 'object' && value !== null && !Array.isArray(value);
    case 'array': return Array.isArray(value);
    case 'string': case 'number': return typeof value === kind;
    default: throw new Error(`the shape names an unknown kind: ${kind}`);
  }
}

/** Throws at the first place where `value` does not look like `shape`. */
export function expectShape(value, shape, where = '$') {
  const shown = () => `${JSON.stringify(value)}`.slice(0, 300);
  if (typeof shape === 'string') {
    assert.ok(shape.split('|').some((kind) => is(value, kind)), `${where} should be ${shape}: ${shown()}`);
  } else if (Array.isArray(shape)) {
    assert.ok(Array.isArray(value), `${where} should be an array: ${shown()}`);
    value.forEach((element, i) => expectShape(element, shape[0], `${where}[${i}]`));
  } else {
    assert.ok(is(value, 'object'), `${where} should be an object: ${shown()}`);
    for (const [key, wanted] of Object.entries(shape)) {
      const name = key.endsWith('?') ? key.slice(0, -1) : key;
      if (name !== key && !(name in value)) continue;
      assert.ok(name in value, `${where} lacks ${name}: ${shown()}`);
      expectShape(value[name], wanted, `${where}.${name}`);
    }
  }
}

/** Of an event: `shapes` by its type, which must be among them. */
export function expectEvent(event, shapes) {
  assert.ok(event.type in shapes, `an event of an unknown type: ${JSON.stringify(event)}`);
  expectShape(event, shapes[event.type], event.type);
}
