import { eq } from 'drizzle-orm'
import guest from '../../../dist/guest/guest.txt'
import { hasServers, serversCode } from '../../builder/node-servers.ts'
import type { Image } from '../../builder/program-image.ts'
import type { SystemCtx } from '../../ctx.ts'
import { functionDeployments } from '../../model/tables/index.ts'
import { openBucket } from '../../platform/blobs/bucket.ts'
import type { KnownFunction } from '../functions/open-function.ts'
import { projectEnvironment } from './environment.ts'
import type { ProgramBindings } from './program-bindings.ts'
import { imageKey } from './program-keys.ts'

const COMPATIBILITY_DATE = '2026-11-01'
const MAIN = 'start-program.js'
const GUEST = 'program-guest.js'
const SERVERS = 'program-servers.js'
const FILE = 'static-file-'
export const CHECK = 'startProgram'
/** Limits of one request, where the platform enforces them. */
const CPU_MS_MAX = 2_000
const SUBREQUESTS_MAX = 1_000

/** Reads everything that a new isolate needs to run a function. */
export async function loadFunctionCode(
  ctx: SystemCtx,
  { ref, deployed }: KnownFunction,
  programBindings: ProgramBindings,
): Promise<WorkerLoaderWorkerCode> {
  if (!deployed) throw new Error('the function has no deployment')
  const [image, entrypoint, environment] = await Promise.all([
    readImage(ctx, imageKey(ref, deployed.deploymentId)),
    entrypointOf(ctx, deployed.deploymentId),
    projectEnvironment(ctx, ref),
  ])
  const variables = { ...environment, DENO_DEPLOYMENT_ID: `${ref}_${deployed.id}_${deployed.version}` }
  return workerCodeOf(image, { entrypoint, variables, programBindings })
}

export interface Program {
  /** Path of the entry module in the source. */
  entrypoint: string
  variables: Record<string, string>
  /** Whether the exported handler gets the environment and the context, as in a Worker. */
  isWorker?: boolean
  programBindings: ProgramBindings
}

/** Code of the isolate. The code of a worker has the entrypoint CHECK, which starts the program and reports whether it serves requests. */
export function workerCodeOf(
  image: Image,
  { entrypoint, variables, programBindings, isWorker = false }: Program,
): WorkerLoaderWorkerCode {
  const files = Object.entries(image.files)
  const imports = files.map((_, n) => `import file${n} from './${FILE}${n}'`)
  const table = files.map(([path], n) => `[${JSON.stringify(path)}]: file${n}`)
  const usesServers = hasServers(image)
  const main = [
    `import { createCheck, createWorker } from './${GUEST}'`,
    ...(usesServers ? [`import './${SERVERS}'`] : []),
    `import * as program from ${JSON.stringify(`./${image.main}`)}`,
    ...imports,
    ...(isWorker ? [`export const ${CHECK} = createCheck(program)`] : []),
    `export default createWorker(program, { files: { ${table.join(', ')} }, entrypoint: ${JSON.stringify(entrypoint)}, isWorker: ${isWorker} })`,
  ]
  return {
    compatibilityDate: COMPATIBILITY_DATE,
    compatibilityFlags: ['nodejs_compat'],
    mainModule: MAIN,
    modules: {
      ...Object.fromEntries(Object.entries(image.modules).map(([name, module]) => [name, moduleOf(module)])),
      ...Object.fromEntries(files.map(([, bytes], n) => [`${FILE}${n}`, { data: decode(bytes) }])),
      [GUEST]: { js: guest },
      ...(usesServers && { [SERVERS]: { js: serversCode(GUEST) } }),
      [MAIN]: { js: main.join('\n') },
    },
    env: {
      ...{ ...image.vars, ...variables },
      ...(image.assets?.binding && programBindings.assets && { [image.assets.binding]: programBindings.assets }),
      // No secret can have this name.
      '=console': programBindings.console,
    },
    globalOutbound: programBindings.outbound(variables.SUPABASE_DB_URL),
    limits: { cpuMs: CPU_MS_MAX, subRequests: SUBREQUESTS_MAX },
  }
}

function moduleOf(module: Image['modules'][string]): WorkerLoaderModule {
  if ('data' in module) return { data: decode(module.data) }
  if ('wasm' in module) return { wasm: decode(module.wasm) }
  return module
}

function decode(base64: string): ArrayBuffer {
  const { buffer, byteOffset, byteLength } = Buffer.from(base64, 'base64')
  return buffer.slice(byteOffset, byteOffset + byteLength) as ArrayBuffer
}

/** Only the builder writes images, so the content is not validated. */
export async function readImage({ config, bindings }: SystemCtx, key: string): Promise<Image> {
  return (await openBucket(config, bindings.SERVICES_EGRESS).request('GET', key)).json()
}

async function entrypointOf({ db }: SystemCtx, deploymentId: string): Promise<string> {
  const [row] = await db
    .select({ entrypoint: functionDeployments.entrypoint })
    .from(functionDeployments)
    .where(eq(functionDeployments.id, deploymentId))
  return row?.entrypoint ?? ''
}
