import { inspect } from 'node:util'
import { errors, unavailable } from './errors.ts'
import { FileReader, ProgressEvent } from './file-reader.ts'
import { createFileReader, type Files } from './files.ts'
import { currentInvocation } from './invocation.ts'
import { machine } from './machine.ts'
import { serve } from './serve.ts'
import { upgradeWebSocket } from './websocket.ts'

const UNAVAILABLE = `
  bench chdir chmod chmodSync chown chownSync connect connectQuic connectTls copyFile copyFileSync create createHttpClient
  createSync cron dlopen link linkSync listen listenDatagram listenTls lstat lstatSync makeTempDir makeTempDirSync makeTempFile
  makeTempFileSync memoryUsage mkdir mkdirSync open openKv openSync readDir readDirSync readLink readLinkSync realPath realPathSync
  remove removeSync rename renameSync resolveDns run startTls stat statSync symlink symlinkSync systemMemoryInfo test truncate
  truncateSync umask utime utimeSync watchFs writeFile writeFileSync writeTextFile writeTextFileSync`
  .trim()
  .split(/\s+/)

/** Returns undefined for inherited properties such as `constructor`. */
function variableOf(name: string): string | undefined {
  const value: unknown = process.env[name]
  return typeof value === 'string' ? value : undefined
}

const env = {
  get: variableOf,
  set: (name: string, value: string): void => {
    process.env[name] = String(value)
  },
  has: (name: string): boolean => variableOf(name) !== undefined,
  delete: (name: string): void => {
    delete process.env[name]
  },
  toObject: (): Record<string, string> => ({ ...process.env }) as Record<string, string>,
}

/** All permissions are granted: there is no user to ask. */
const GRANTED = Object.freeze({ state: 'granted', partial: false, onchange: null })
const permissions = {
  query: async () => GRANTED,
  request: async () => GRANTED,
  revoke: async () => GRANTED,
  querySync: () => GRANTED,
  requestSync: () => GRANTED,
  revokeSync: () => GRANTED,
}

/** A stream whose chunks become lines of the console. */
function streamTo(level: 'log' | 'error') {
  const writeSync = (bytes: Uint8Array): number => {
    console[level](new TextDecoder().decode(bytes).replace(/\n$/, ''))
    return bytes.length
  }
  const write = async (bytes: Uint8Array) => writeSync(bytes)
  const isTerminal = () => false
  return {
    write,
    writeSync,
    isTerminal,
    close() {},
    writable: new WritableStream<Uint8Array>({ write: (b) => void writeSync(b) }),
  }
}

/** Installs the globals that programs for Deno expect, as far as the runtime supports them. */
export function installDeno(): void {
  const deno = {
    ...Object.fromEntries(UNAVAILABLE.map((name) => [name, unavailable(`Deno.${name}`)])),
    ...machine,
    args: [],
    build: { target: 'x86_64-unknown-linux-gnu', arch: 'x86_64', os: 'linux', vendor: 'unknown', env: 'gnu' },
    version: { deno: '2.1.4', v8: '', typescript: '' },
    noColor: true,
    pid: 1,
    mainModule: 'file:///',
    cwd: () => '/',
    inspect,
    env,
    permissions,
    refTimer() {},
    unrefTimer() {},
    stdout: streamTo('log'),
    stderr: streamTo('error'),
    Command: class Command {
      constructor() {
        unavailable('Deno.Command')()
      }
    },
    errors,
    serve,
    upgradeWebSocket,
  }
  define('Deno', deno)
  define('EdgeRuntime', {
    waitUntil(work: Promise<unknown>) {
      currentInvocation()?.waitUntil(Promise.resolve(work).catch((error) => console.error('Uncaught', error)))
      return work
    },
  })
  define('window', globalThis)
  define('FileReader', FileReader)
  define('ProgressEvent', ProgressEvent)
  // Some hosts share one cache between all programs.
  define('caches', undefined)
}

/** Adds the parts of `Deno` that depend on the program: its files and its main module. */
export function installFiles(source: { files: Files; entrypoint: string }): void {
  Object.assign(Reflect.get(globalThis, 'Deno'), createFileReader(source), {
    mainModule: `file:///${source.entrypoint}`,
  })
}

function define(name: string, value: unknown): void {
  Object.defineProperty(globalThis, name, { value, configurable: true, writable: true, enumerable: false })
}
