import { parseArgs } from 'node:util'
import { errorMessage, StartError } from '../start-error.ts'
import { accessCommands } from './access.ts'
import { auditCommands } from './audit.ts'
import { backupCommands } from './backups.ts'
import { type Command, OPTIONS } from './command.ts'
import { connectionCommands } from './connections.ts'
import { encryptionCommands } from './encryption.ts'
import { hostCommands } from './hosts.ts'
import { identityCommands } from './identities.ts'
import { invitationCommands } from './invitations.ts'
import { memberCommands } from './members.ts'
import { moveCommands } from './moves.ts'
import { oauthAppCommands } from './oauth-apps.ts'
import { oauthKeyCommands } from './oauth-keys.ts'
import { organizationCommands } from './organizations.ts'
import { readOnlyCommands } from './read-only.ts'
import { upgradeCommands } from './upgrades.ts'
import { webhookCommands } from './webhooks.ts'

const COMMANDS: Record<string, Command> = {
  ...auditCommands,
  ...identityCommands,
  ...accessCommands,
  ...organizationCommands,
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
const lines = Object.entries(COMMANDS).map(([name, command]) => `  ${usageOf(name, command)}`)
const USAGE = `${PROGRAM} <command>\n\n${lines.join('\n')}`

/** What the arguments ask for, ready to run on a database. */
export function readCommand(argv: string[]) {
  const { positionals, values } = parse(argv)
  const [noun = '', verb = '', ...args] = positionals
  const name = `${noun} ${verb}`
  const command = COMMANDS[name]
  if (!command || args.length !== command.args.length) throw new StartError(USAGE)
  checkOptions(name, command, Object.keys(values))
  return async (db: Parameters<Command['run']>[0]) => {
    const said = await command.run(db, args, values)
    return typeof said === 'string' ? { text: said, exitCode: 0 } : said
  }
}

/** One that is overlooked would have a command do more than it was asked for. */
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
    throw new StartError(`${errorMessage(error)}\n\n${USAGE}`)
  }
}
