import type { Router } from 'hono/router'
import { RegExpRouter } from 'hono/router/reg-exp-router'
import { SmartRouter } from 'hono/router/smart-router'
import { TrieRouter } from 'hono/router/trie-router'

/**
 * Creates a router that looks up paths without parameters in a separate table first. Hono's fastest router does not support
 * `/projects/available-regions` together with `/projects/:ref`, and its fallback costs ten times as much per request.
 */
export function createRouter<T>(): Router<T> {
  const fixed = new RegExpRouter<T>()
  const parametric = new SmartRouter<T>({ routers: [new RegExpRouter(), new TrieRouter()] })
  const fixedPaths = new Set<string>()
  return {
    name: 'fixed paths first',
    add(method, path, handler) {
      const isWildcard = path.includes('*')
      if (isWildcard || path.includes(':')) parametric.add(method, path, handler)
      if (isWildcard || !path.includes(':')) fixed.add(method, path, handler)
      if (!isWildcard && !path.includes(':')) fixedPaths.add(path)
    },
    match: (method, path) => (fixedPaths.has(path) ? fixed : parametric).match(method, path),
  }
}
