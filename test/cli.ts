import { execFile } from 'node:child_process'
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join, resolve } from 'node:path'
import { promisify } from 'node:util'
import { onTestFinished } from 'vitest'
import { baseUrl, type Caller } from './api.ts'

/** The supabase CLI in a home of its own, for the length of a test. */
export function cliOf({ token }: Caller) {
  const home = mkdtempSync(join(tmpdir(), 'pilothouse-cli-'))
  onTestFinished(() => rmSync(home, { recursive: true }))
  const profile = { name: 'pilothouse', api_url: baseUrl, dashboard_url: baseUrl, project_host: 'localhost' }
  writeFileSync(join(home, 'profile.json'), JSON.stringify(profile))
  const env = {
    ...process.env,
    SUPABASE_PROFILE: join(home, 'profile.json'),
    SUPABASE_ACCESS_TOKEN: token,
    SUPABASE_HOME: home,
    HOME: home,
    SUPABASE_NO_KEYRING: 'true',
    SUPABASE_TELEMETRY_DISABLED: '1',
    SUPABASE_NO_UPDATE_NOTIFIER: '1',
  }
  return async (...args: string[]): Promise<string> =>
    (await promisify(execFile)(resolve('node_modules/.bin/supabase'), [...args, '--experimental'], { env, cwd: home }))
      .stdout
}
