import { eq } from 'drizzle-orm'
import { decodeBase64, GUEST, importServers, modulesOf } from '../../builder/image-modules.ts'
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
  const main = [
    `import { createCheck, createWorker } from './${GUEST}'`,
    importServers(image),
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
      ...modulesOf(image),
      ...Object.fromEntries(files.map(([, bytes], n) => [`${FILE}${n}`, { data: decodeBase64(bytes) }])),
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
