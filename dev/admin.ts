import { parseArgs } from 'node:util'
import { COMMANDS, USAGE } from './admin/commands.ts'
import { describeFailure } from './lifetime.ts'
import { openControlDatabase } from './seed.ts'
import { StartError } from './start-error.ts'
import { targetDatabaseUrl } from './target.ts'

/** `npm run admin -- <noun> <verb> <arguments> --options`: what has no endpoint, straight on the control database. */
async function main(): Promise<void> {
  const { positionals, values } = parseArgs({
    allowPositionals: true,
    options: {
      scopes: { type: 'string' },
      days: { type: 'string' },
      name: { type: 'string' },
      owner: { type: 'string' },
      project: { type: 'string' },
    },
  })
  const [noun = '', verb = '', ...args] = positionals
  const command = COMMANDS[`${noun} ${verb}`]
  if (!command || args.length !== command.args.length) throw new StartError(USAGE)
  const { db, close } = openControlDatabase(await targetDatabaseUrl(process.env))
  try {
    console.log(await command.run(db, args, values))
  } finally {
    await close()
  }
}

main().catch((error) => {
  console.error(describeFailure(error))
  process.exitCode = 1
})
