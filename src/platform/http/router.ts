import type { Router } from 'hono/router'
import { RegExpRouter } from 'hono/router/reg-exp-router'
import { SmartRouter } from 'hono/router/smart-router'
import { TrieRouter } from 'hono/router/trie-router'

/**
 * Hono's fastest router refuses `/projects/available-regions` beside `/projects/:ref`, and the one it falls back to
 * costs ten times as much a request; so whole paths have a table of their own, which is asked first.
 */
export function createRouter<T>(): Router<T> {
  const fixed = new RegExpRouter<T>()
  const open = new SmartRouter<T>({ routers: [new RegExpRouter(), new TrieRouter()] })
  const fixedPaths = new Set<string>()
  return {
    name: 'fixed paths first',
    add(method, path, handler) {
      const everywhere = path.includes('*')
      if (everywhere || path.includes(':')) open.add(method, path, handler)
      if (everywhere || !path.includes(':')) fixed.add(method, path, handler)
      if (!everywhere && !path.includes(':')) fixedPaths.add(path)
    },
    match: (method, path) => (fixedPaths.has(path) ? fixed : open).match(method, path),
  }
}
