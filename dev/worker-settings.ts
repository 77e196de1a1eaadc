import { Settings as BuilderSettings } from '../src/builder/settings.ts'
import { parseConfig } from '../src/config.ts'
import { StartError } from './start-error.ts'

/** Matches settings whose value must not appear in a terminal or a log. */
const SECRET = /KEY|TOKEN|SECRET|DATABASE_URL/

/** The settings that the builder has of these bindings. */
export const builderSettings = (bindings: Record<string, string>): Record<string, string> =>
  Object.fromEntries(Object.entries(bindings).filter(([name, value]) => name in BuilderSettings.shape && value))

/** Validates the settings at the start. The Worker does so only at its first request, too late for the person who starts it. */
export function checkSettings(bindings: Record<string, string>): void {
  refuseFirst(issuesOf(bindings), bindings)
}

/** Validates each of the given settings, before there are those of the services that the Worker needs too. */
export function checkEach(given: Record<string, string>): void {
  const issues = issuesOf(given).filter(({ path }) => String(path[0]) in given)
  refuseFirst(issues, given)
}

const issuesOf = (bindings: Record<string, string>) => [
  ...(parseConfig(bindings).error?.issues ?? []),
  ...(BuilderSettings.safeParse(builderSettings(bindings)).error?.issues ?? []),
]

function refuseFirst([issue]: ReturnType<typeof issuesOf>, bindings: Record<string, string>): void {
  if (!issue) return
  const name = issue.path.join('.')
  const value = SECRET.test(name) ? '' : `=${bindings[String(issue.path[0])] ?? ''}`
  throw new StartError(`${name}${value} cannot be used: ${issue.message}.`)
}
