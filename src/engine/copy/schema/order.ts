import type { Definition } from './scope.ts'

export interface Dependency {
  id: string
  on: string
}

interface Node extends Definition {
  /** Made after the rows are in. */
  late: boolean
}

/** Each definition after what it needs; what needs something late is late itself. */
export function inOrder(
  nodes: readonly Node[],
  dependencies: readonly Dependency[],
): { early: Definition[]; late: Definition[] } {
  const byId = new Map(nodes.map((node) => [node.id, node]))
  const needs = new Map<string, string[]>()
  for (const { id, on } of dependencies) {
    if (id === on || !byId.has(id) || !byId.has(on)) continue
    const known = needs.get(id)
    if (known) known.push(on)
    else needs.set(id, [on])
  }
  const early: Definition[] = []
  const late: Definition[] = []
  const isLate = new Map<string, boolean>()
  for (const root of nodes) visit(root)
  return { early, late }

  /** Without recursion: a chain of views can be long. A circle, which no dependency of creation makes, is cut where it closes. */
  function visit(root: Node): void {
    const stack = [{ node: root, next: 0 }]
    const entered = new Set([root.id])
    if (isLate.has(root.id)) return
    for (let top = stack.at(-1); top; top = stack.at(-1)) {
      const needed = needs.get(top.node.id) ?? []
      const id = needed[top.next]
      top.next += 1
      if (id === undefined) {
        finish(top.node, needed)
        stack.pop()
        continue
      }
      const node = byId.get(id)
      if (!node || isLate.has(id) || entered.has(id)) continue
      entered.add(id)
      stack.push({ node, next: 0 })
    }
  }

  function finish(node: Node, needed: readonly string[]): void {
    const waits = node.late || needed.some((id) => isLate.get(id))
    isLate.set(node.id, waits)
    ;(waits ? late : early).push(node)
  }
}
