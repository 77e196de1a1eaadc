import { parseArgs } from 'node:util'
import { errorMessage, StartError } from '../start-error.ts'
import { type Command, OPTIONS } from './command.ts'
import { connectionCommands } from './connections.ts'
import { identityCommands } from './identities.ts'
import { invitationCommands } from './invitations.ts'
import { memberCommands } from './members.ts'
import { oauthAppCommands } from './oauth-apps.ts'
import { organizationCommands } from './organizations.ts'
import { readOnlyCommands } from './read-only.ts'
import { webhookCommands } from './webhooks.ts'

const COMMANDS: Record<string, Command> = {
  ...identityCommands,
  ...organizationCommands,
  ...memberCommands,
  ...oauthAppCommands,
  ...invitationCommands,
  ...readOnlyCommands,
  ...connectionCommands,
  ...webhookCommands,
}

const lines = Object.entries(COMMANDS).map(([name, { args, options = '' }]) =>
  `  ${name} ${args.map((arg) => `<${arg}>`).join(' ')} ${options}`.replace(/ +$/, '').replaceAll(/(\S) {2,}/g, '$1 '),
)
const USAGE = `npm run admin -- <command>\n\n${lines.join('\n')}`

/** What the arguments ask for, ready to run on a database. */
export function readCommand(argv: string[]) {
  const { positionals, values } = parse(argv)
  const [noun = '', verb = '', ...args] = positionals
  const command = COMMANDS[`${noun} ${verb}`]
  if (!command || args.length !== command.args.length) throw new StartError(USAGE)
  return async (db: Parameters<Command['run']>[0]) => {
    const said = await command.run(db, args, values)
    return typeof said === 'string' ? { text: said, exitCode: 0 } : said
  }
}

function parse(argv: string[]) {
  try {
    return parseArgs({ args: argv, allowPositionals: true, options: OPTIONS })
  } catch (error) {
    throw new StartError(`${errorMessage(error)}\n\n${USAGE}`)
  }
}
