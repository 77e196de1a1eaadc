import * as z from 'zod'
import { readText } from '../platform/http/read-text.ts'
import { Problem } from './build-problem.ts'
import { GUEST, importServers, modulesOf } from './image-modules.ts'
import type { Image } from './program-image.ts'
import type { Probe, ProbeResult } from './protocol.ts'
import type { Bindings } from './settings.ts'

const MAIN = 'probe-program.js'
const SECONDS = 10

/** Starts a program without network and without calling its handlers. Rejects with Problem if it does not start. */
export async function probe({ LOADER }: Bindings, { image, env = {} }: Probe): Promise<ProbeResult> {
  const { binding } = image.assets ?? {}
  if (binding !== undefined && Object.hasOwn(env, binding))
    throw new Problem(`Invalid \`assets.binding\` ${binding}: a secret or variable of the project has the same name`)
  const stub = LOADER.load({
    compatibilityDate: '2026-11-01',
    compatibilityFlags: ['nodejs_compat'],
    mainModule: MAIN,
    modules: { ...modulesOf(image), [MAIN]: { js: mainOf(image) } },
    env: { ...image.vars, ...env },
    globalOutbound: null,
    limits: { cpuMs: SECONDS * 1_000 },
  })
  const starting = stub.getEntrypoint().fetch('http://probe/')
  const reading = starting
    .catch(throwStartError)
    .then((response) => readText(response, ANSWER_BYTES_MAX).catch(throwInvalidAnswer))
  const text = await Promise.race([reading, scheduler.wait(SECONDS * 1_000).then(throwTimeout)])
  return parseAnswer(text) ?? throwInvalidAnswer()
}

/** Answer of the probe. It is validated, because the program may have replaced the globals that create it. */
const Answer = z.object({ handlers: z.array(z.string()) })
const ANSWER_BYTES_MAX = 1_024

function parseAnswer(text = ''): z.output<typeof Answer> | undefined {
  try {
    return Answer.safeParse(JSON.parse(text)).data
  } catch {
    return undefined
  }
}

/** Time that a program has to start after its first `fetch`, which never resolves here. */
const OFFLINE_MS = 500

/** Time that a program has to finish after Deno.serve: it may export handlers, or wait for its server forever. */
const SERVING_MS = 50

/**
 * Code that imports the program to see its exports, without running them. A program that waits for the network at its
 * top level cannot start here: it is assumed to serve, and its first request shows whether it does.
 */
const mainOf = (image: Image): string => `
  import { hasServer, serverReady } from './${GUEST}'
  ${importServers(image)}
  import * as program from ${JSON.stringify(`./${image.main}`)}
  let onFetch
  const startedOffline = new Promise((resolve) => { onFetch = () => resolve(${OFFLINE_MS}) }).then((ms) => scheduler.wait(ms)).then(() => ({ default: { fetch() {}, scheduled() {} } }))
  globalThis.fetch = () => { onFetch(); return new Promise(() => {}) }
  export default { async fetch() {
    const evaluated = program.start ? program.start() : program
    const { default: given } = await Promise.race([evaluated, serverReady.then(() => scheduler.wait(${SERVING_MS})).then(() => ({})), startedOffline])
    const methods = typeof given === 'function' ? given.prototype : given
    const handlers = ['fetch', 'scheduled', 'queue', 'email', 'tail'].filter((name) => typeof methods?.[name] === 'function' || (name === 'fetch' && hasServer()))
    return Response.json({ handlers })
  } }`

function throwStartError(error: unknown): never {
  const message = error instanceof Error ? error.message : String(error)
  throw new Problem(`The program does not start: ${message.replace(/^Failed to start Worker:\s*/, '')}`)
}

function throwInvalidAnswer(): never {
  throw new Problem('The program could not be checked: it must not replace Response or its methods')
}

function throwTimeout(): never {
  throw new Problem(`The program did not start within ${SECONDS} s`)
}
