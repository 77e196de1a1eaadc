import { execFile } from 'node:child_process'
import { existsSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join, resolve } from 'node:path'
import { promisify } from 'node:util'
import { onTestFinished } from 'vitest'
import { optionalDependencies } from '../../package.json' with { type: 'json' }
import { baseUrl, type Caller } from './api.ts'

/** The lockfile has the checksum of the CLI for Linux on x64 alone; npm loads that of another system at the first call. */
const LOCKED = resolve('node_modules/@supabase/cli-linux-x64/bin/supabase')
const [PROGRAM, ...FIRST]: [string, ...string[]] = existsSync(LOCKED)
  ? [LOCKED]
  : ['npx', '--yes', `supabase@${optionalDependencies['@supabase/cli-linux-x64']}`]

/** The supabase CLI in a home folder of its own. */
export function newCli({ token }: Pick<Caller, 'token'>, url = baseUrl, profileFile?: string) {
  const home = mkdtempSync(join(tmpdir(), 'pilothouse-cli-'))
  const profile = { name: 'pilothouse', api_url: url, dashboard_url: url, project_host: 'localhost' }
  writeFileSync(join(home, 'profile.json'), JSON.stringify(profile))
  const env = {
    ...process.env,
    SUPABASE_PROFILE: profileFile ?? join(home, 'profile.json'),
    SUPABASE_ACCESS_TOKEN: token,
    SUPABASE_HOME: home,
    HOME: home,
    SUPABASE_NO_KEYRING: 'true',
    SUPABASE_TELEMETRY_DISABLED: '1',
    SUPABASE_NO_UPDATE_NOTIFIER: '1',
    // The CLI runs on Bun for a second: the compiler for long programs would take a third of its time.
    BUN_JSC_useDFGJIT: '0',
    BUN_JSC_useConcurrentGC: '0',
  }
  const start = (args: string[]) => promisify(execFile)(PROGRAM, [...FIRST, ...args], { env, cwd: home })
  return {
    home,
    run: async (...args: string[]): Promise<string> => (await start(args)).stdout,
    /** Runs a command with this on its standard input. */
    feed: async (input: string, ...args: string[]): Promise<string> => {
      const started = start(args)
      started.child.stdin?.end(input)
      return (await started).stdout
    },
    remove: () => rmSync(home, { recursive: true }),
  }
}

/** Returns a CLI for the length of a test; its running commands end with it. */
export function cliOf(caller: Caller) {
  const { run, remove } = newCli(caller)
  onTestFinished(remove)
  return (...args: string[]) => run(...args, '--experimental')
}
