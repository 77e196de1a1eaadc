import { eq } from 'drizzle-orm'
import guest from '../../../dist/guest/guest.txt'
import { hasServers, serversCode } from '../../builder/node-servers.ts'
import type { Image } from '../../builder/program-image.ts'
import type { SystemCtx } from '../../ctx.ts'
import { functionDeployments } from '../../model/tables/index.ts'
import { openBucket } from '../../platform/blobs/bucket.ts'
import type { KnownFunction } from '../functions/open-function.ts'
import { projectEnvironment } from './environment.ts'
import { imageKey } from './program-keys.ts'

const COMPATIBILITY_DATE = '2026-11-01'
const MAIN = 'start-program.js'
const GUEST = 'program-programBindings.js'
const SERVERS = 'program-servers.js'
const FILE = 'static-file-'
export const CHECK = 'startProgram'
/** Of one request, where the platform counts it. */
const CPU_MS_MAX = 2_000
const SUBREQUESTS_MAX = 1_000

/** What a program is connected to, made anew for each. */
export interface ProgramBindings {
  /** All ways out; the database at this URL is reached wherever it is. */
  outbound(databaseUrl: string | undefined): Fetcher
  console: Fetcher
  /** Its static assets. */
  assets?: Fetcher | undefined
}

/** Everything an isolate needs to run a function; read where none runs it yet. */
export async function loadFunctionCode(
  ctx: SystemCtx,
  { ref, deployed }: KnownFunction,
  programBindings: ProgramBindings,
): Promise<WorkerLoaderWorkerCode> {
  if (!deployed) throw new Error('nothing is deployed')
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
  /** Its exported handler gets the environment and the context. */
  isWorker?: boolean
  programBindings: ProgramBindings
}

/** The entrypoint CHECK of a worker starts it and says whether it serves. */
export function workerCodeOf(
  image: Image,
  { entrypoint, variables, programBindings, isWorker = false }: Program,
): WorkerLoaderWorkerCode {
  const files = Object.entries(image.files)
  const imports = files.map((_, n) => `import file${n} from './${FILE}${n}'`)
  const table = files.map(([path], n) => `[${JSON.stringify(path)}]: file${n}`)
  const isWithServers = hasServers(image)
  const main = [
    `import { createCheck, createWorker } from './${GUEST}'`,
    ...(isWithServers ? [`import './${SERVERS}'`] : []),
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
      ...(isWithServers && { [SERVERS]: { js: serversCode(GUEST) } }),
      [MAIN]: { js: main.join('\n') },
    },
    env: {
      ...{ ...image.vars, ...variables },
      ...(image.assets?.binding && programBindings.assets && { [image.assets.binding]: programBindings.assets }),
      // A name that no secret can have.
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

/** Written by us and by nobody else, so it is taken for what it says it is. */
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
