import type { Image } from './program-image.ts'

/** For programs that have Node's servers at hand, as to load these costs others a start. Of the module with what surrounds the program. */
export const serversCode = (guest: string): string => `import { Server } from 'node:http'
import { handleAsNodeRequest } from 'cloudflare:node'
import { serveNode } from './${guest}'
serveNode(Server, handleAsNodeRequest)`

export const hasServers = ({ modules }: Image): boolean =>
  Object.values(modules).some((module) => 'js' in module && module.js.includes('node:http'))
