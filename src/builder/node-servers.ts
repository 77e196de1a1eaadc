import type { Image } from './program-image.ts'

/**
 * Code that connects servers of `node:http` to the runtime. Added only to programs that use `node:http`, as loading it
 * slows the start.
 */
export const serversCode = (guest: string): string => `import { Server } from 'node:http'
import { handleAsNodeRequest } from 'cloudflare:node'
import { serveNode } from './${guest}'
serveNode(Server, handleAsNodeRequest)`

export const hasServers = ({ modules }: Image): boolean =>
  Object.values(modules).some((module) => 'js' in module && module.js.includes('node:http'))
