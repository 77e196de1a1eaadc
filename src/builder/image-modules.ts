import guest from '../../dist/guest/guest.txt'
import type { Image } from './program-image.ts'

/** Name of the code around the program, which the main module imports. */
export const GUEST = 'program-guest.js'
const SERVERS = 'program-servers.js'

/** Code that connects servers of `node:http` to the runtime. */
const SERVERS_CODE = `import { Server } from 'node:http'
import { handleAsNodeRequest } from 'cloudflare:node'
import { serveNode } from './${GUEST}'
serveNode(Server, handleAsNodeRequest)`

/** Connecting servers slows the start, so it is left out for programs that do not use `node:http`. */
const hasServers = ({ modules }: Image): boolean =>
  Object.values(modules).some((module) => 'js' in module && module.js.includes('node:http'))

/** Statement of the main module that comes before the import of the program. */
export const importServers = (image: Image): string => (hasServers(image) ? `import './${SERVERS}'` : '')

/** The modules of an isolate that runs an image, except its main module and static files. */
export const modulesOf = (image: Image): Record<string, WorkerLoaderModule> => ({
  ...Object.fromEntries(Object.entries(image.modules).map(([name, module]) => [name, moduleOf(module)])),
  ...(hasServers(image) && { [SERVERS]: { js: SERVERS_CODE } }),
  [GUEST]: { js: guest },
})

function moduleOf(module: Image['modules'][string]): WorkerLoaderModule {
  if ('data' in module) return { data: decodeBase64(module.data) }
  return 'wasm' in module ? { wasm: decodeBase64(module.wasm) } : module
}

export const decodeBase64 = (base64: string): ArrayBuffer => new Uint8Array(Buffer.from(base64, 'base64')).buffer
