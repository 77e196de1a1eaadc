import { parseArgs } from 'node:util'
import type { ControlDb } from '../seed.ts'
import { errorMessage, StartError } from '../start-error.ts'
import { accessCommands } from './access.ts'
import { auditCommands } from './audit.ts'
import { backupCommands } from './backups.ts'
import { type Command, OPTIONS, type Report } from './command.ts'
import { connectionCommands } from './connections.ts'
import { encryptionCommands } from './encryption.ts'
import { hostCommands } from './hosts.ts'
import { identityCommands } from './identities.ts'
import { invitationCommands } from './invitations.ts'
import { memberCommands } from './members.ts'
import { moveCommands } from './moves.ts'
import { oauthAppCommands } from './oauth-apps.ts'
import { oauthKeyCommands } from './oauth-keys.ts'
import { organizationRemovalCommands } from './organization-removal.ts'
import { organizationCommands } from './organizations.ts'
import { projectCommands } from './projects.ts'
import { readOnlyCommands } from './read-only.ts'
import { statusCommands } from './status.ts'
import { taskCommands } from './tasks.ts'
import { upgradeCommands } from './upgrades.ts'
import { webhookCommands } from './webhooks.ts'

const COMMANDS: Record<string, Command> = {
  ...statusCommands,
  ...auditCommands,
  ...identityCommands,
  ...accessCommands,
  ...organizationCommands,
  ...organizationRemovalCommands,
  ...projectCommands,
  ...taskCommands,
  ...memberCommands,
  ...oauthAppCommands,
  ...oauthKeyCommands,
  ...invitationCommands,
  ...readOnlyCommands,
  ...connectionCommands,
  ...webhookCommands,
  ...encryptionCommands,
  ...hostCommands,
  ...backupCommands,
  ...upgradeCommands,
  ...moveCommands,
}

const PROGRAM = 'npm run admin --'
const usageOf = (name: string, { args, options = '' }: Command) =>
  [name, ...args.map((arg) => `<${arg}>`), options].filter((part) => part !== '').join(' ')
const helpOf = (name: string, command: Command) => `${PROGRAM} ${usageOf(name, command)}\n\n${command.summary}`

/** Lists the commands of a noun, or those of all nouns, each with its summary. */
function listOf(noun?: string): string {
  const byNoun = Map.groupBy(Object.entries(COMMANDS), ([name]) => name.split(' ')[0])
  const listed = noun === undefined ? [...byNoun.values()].flat() : (byNoun.get(noun) ?? [])
  const lines = listed.map(([name, command]) => `  ${usageOf(name, command)}\n      ${command.summary}`)
  return `${PROGRAM} ${noun ?? '<command>'}${listed.length > 1 && noun ? ' <command>' : ''}\n\n${lines.join('\n')}`
}
const NOUNS = new Set(Object.keys(COMMANDS).map((name) => name.split(' ')[0]))

type Run = (db: ControlDb) => Promise<Report>

/** The help for a command, a noun or everything; undefined without `--help`. */
export function readHelp(argv: string[]): string | undefined {
  const { positionals, values } = parse(argv)
  if (!values.help) return undefined
  const { name } = splitName(positionals)
  const command = COMMANDS[name]
  if (command) return helpOf(name, command)
  if (positionals.length === 0) return listOf()
  if (positionals.length === 1 && NOUNS.has(positionals[0])) return listOf(positionals[0])
  throw unknownCommand(positionals)
}

/** Reads the command line. Returns what to run on the control database. */
export function readCommand(argv: string[]): Run {
  const { positionals, values } = parse(argv)
  const { name, args } = splitName(positionals)
  const command = COMMANDS[name]
  if (!command) throw unknownCommand(positionals)
  if (args.length !== command.args.length) {
    const wanted = command.args.length === 0 ? 'no arguments' : command.args.map((arg) => `<${arg}>`).join(' ')
    throw new StartError(`${name} takes ${wanted}; ${args.length} given\n\n${PROGRAM} ${usageOf(name, command)}`)
  }
  checkOptions(name, command, Object.keys(values))
  return async (db) => {
    const result = await command.run(db, args, values)
    return typeof result === 'string' ? { text: result, exitCode: 0 } : result
  }
}

function unknownCommand(positionals: string[]): StartError {
  const noun = NOUNS.has(positionals[0]) ? positionals[0] : undefined
  const isIncomplete = positionals.length === (noun ? 1 : 0)
  return new StartError(`${isIncomplete ? '' : `Unknown command: ${positionals.join(' ')}\n\n`}${listOf(noun)}`)
}

/** Splits off the name of the command: a noun and a verb, or a single word. */
function splitName([first = '', second = '', ...args]: string[]) {
  if (first in COMMANDS) return { name: first, args: second === '' ? args : [second, ...args] }
  return { name: `${first} ${second}`, args }
}

/** Refuses unknown options: a command that ignores one could do more than the operator wants. */
function checkOptions(name: string, command: Command, given: readonly string[]): void {
  const taken: readonly string[] = command.options?.match(/--[a-z-]+/g) ?? []
  const unknown = given.map((option) => `--${option}`).find((option) => !taken.includes(option))
  if (unknown === undefined) return
  throw new StartError(`${name} does not take ${unknown}\n\n${PROGRAM} ${usageOf(name, command)}`)
}

function parse(argv: string[]) {
  try {
    return parseArgs({ args: argv, allowPositionals: true, options: OPTIONS })
  } catch (error) {
    // The options are wrong, but the command may be known: then show its usage.
    const { positionals } = parseArgs({ args: argv, allowPositionals: true, options: OPTIONS, strict: false })
    const { name } = splitName(positionals)
    const command = COMMANDS[name]
    const usage = command ? `${PROGRAM} ${usageOf(name, command)}` : listOf()
    throw new StartError(`${errorMessage(error)}\n\n${usage}`)
  }
}
