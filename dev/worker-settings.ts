import { Settings as BuilderSettings } from '../src/builder/settings.ts'
import { parseConfig } from '../src/config.ts'
import { settingProblem } from '../src/platform/setting-problem.ts'
import { StartError } from './start-error.ts'

/** Valid values of the settings that services or secrets provide later, so that the given ones can be checked first. */
export const PLACEHOLDERS: Record<string, string> = {
  ENGINE: 'host',
  HOST_URL: 'http://127.0.0.1',
  HOST_KEY: 'key',
  DATABASE_HOST: '127.0.0.1',
  DATABASE_PORT: '5432',
  BASE_URL: 'http://127.0.0.1',
  NEON_PROXY: 'http://127.0.0.1',
  DATABASE_URL: 'postgresql://127.0.0.1',
  METRICS_TOKEN: 'x'.repeat(32),
  ENCRYPTION_KEY: `k1:${Buffer.alloc(32).toString('base64')}`,
  S3_ENDPOINT: 'http://127.0.0.1',
  S3_BUCKET: 'bucket',
  S3_ACCESS_KEY_ID: 'id',
  S3_SECRET_ACCESS_KEY: 'secret',
}

/** The settings that the builder has of these bindings. */
export const builderSettings = (bindings: Record<string, string>): Record<string, string> =>
  Object.fromEntries(Object.entries(bindings).filter(([name, value]) => name in BuilderSettings.shape && value))

/** Validates the settings at the start. The Worker does so only at its first request, too late for the person who starts it. */
export function checkSettings(bindings: Record<string, string>): void {
  const [issue] = [
    ...(parseConfig(bindings).error?.issues ?? []),
    ...(BuilderSettings.safeParse(builderSettings(bindings)).error?.issues ?? []),
  ]
  if (issue) throw new StartError(settingProblem(issue, bindings))
}
