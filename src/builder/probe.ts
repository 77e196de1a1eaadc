import * as z from 'zod'
import guest from '../../dist/guest/guest.txt'
import { readText } from '../platform/http/read-text.ts'
import { Problem } from './build-problem.ts'
import { hasServers, serversCode } from './node-servers.ts'
import type { Image } from './program-image.ts'
import type { Probe, ProbeResult } from './protocol.ts'
import type { Bindings } from './settings.ts'

const MAIN = 'probe-program.js'
const GUEST = 'probe-surroundings.js'
const SERVERS = 'probe-servers.js'
const SECONDS = 10

/** Starts a program without calling any of its handlers, cut off from the network. Rejects with Problem where it does not start. */
export async function probe({ LOADER }: Bindings, { image, env = {} }: Probe): Promise<ProbeResult> {
  const stub = LOADER.load({
    compatibilityDate: '2026-11-01',
    compatibilityFlags: ['nodejs_compat'],
    mainModule: MAIN,
    modules: modulesOf(image),
    env: { ...image.vars, ...env },
    globalOutbound: null,
    limits: { cpuMs: SECONDS * 1_000 },
  })
  const started = stub.getEntrypoint().fetch('http://probe/')
  const answered = started.catch(refused).then((response) => readText(response, ANSWER_BYTES_MAX).catch(strange))
  const text = await Promise.race([answered, scheduler.wait(SECONDS * 1_000).then(late)])
  return answerIn(text) ?? strange()
}

/** The program may have put something of its own in the place of what answers. */
const Answer = z.object({ handlers: z.array(z.string()) })
const ANSWER_BYTES_MAX = 1_024

function answerIn(text = ''): z.output<typeof Answer> | undefined {
  try {
    return Answer.safeParse(JSON.parse(text)).data
  } catch {
    return undefined
  }
}

/** After it has asked the network, which gives no answer here, a program has this long to start all the same. */
const CUT_OFF_MS = 500

/** A program that serves may export more at its end, or wait there for its server. */
const SERVING_MS = 50

/**
 * Imported and not loaded by itself: what it exports is seen, and nothing that it exports runs. A program that waits for the network at its
 * top level cannot start here: it counts as one that serves, and its first request shows whether it does.
 */
const mainOf = (image: Image): string => `
  import { hasServer, serverReady } from './${GUEST}'
  ${hasServers(image) ? `import './${SERVERS}'` : ''}
  import * as program from ${JSON.stringify(`./${image.main}`)}
  let cutOff
  const isCutOff = new Promise((resolve) => { cutOff = () => resolve(${CUT_OFF_MS}) }).then((ms) => scheduler.wait(ms)).then(() => ({ default: { fetch() {}, scheduled() {} } }))
  globalThis.fetch = () => { cutOff(); return new Promise(() => {}) }
  export default { async fetch() {
    const evaluated = program.start ? program.start() : program
    const { default: given } = await Promise.race([evaluated, serverReady.then(() => scheduler.wait(${SERVING_MS})).then(() => ({})), isCutOff])
    const methods = typeof given === 'function' ? given.prototype : given
    const handlers = ['fetch', 'scheduled', 'queue', 'email', 'tail'].filter((name) => typeof methods?.[name] === 'function' || (name === 'fetch' && hasServer()))
    return Response.json({ handlers })
  } }`

const modulesOf = (image: Image): Record<string, WorkerLoaderModule> => ({
  ...Object.fromEntries(Object.entries(image.modules).map(([name, module]) => [name, moduleOf(module)])),
  ...(hasServers(image) && { [SERVERS]: { js: serversCode(GUEST) } }),
  [GUEST]: { js: guest },
  [MAIN]: { js: mainOf(image) },
})

function moduleOf(module: Image['modules'][string]): WorkerLoaderModule {
  if ('data' in module) return { data: decode(module.data) }
  return 'wasm' in module ? { wasm: decode(module.wasm) } : module
}

const decode = (base64: string): ArrayBuffer => new Uint8Array(Buffer.from(base64, 'base64')).buffer

function refused(error: unknown): never {
  const message = error instanceof Error ? error.message : String(error)
  throw new Problem(`The program does not start: ${message.replace(/^Failed to start Worker:\s*/, '')}`)
}

function strange(): never {
  throw new Problem('The program changes how a Response is made, and cannot be told from one that does not start')
}

function late(): never {
  throw new Problem(`The program did not start within ${SECONDS} s`)
}
