import { restore } from './backup/restore-command.ts'
import { describeFailure } from './lifetime.ts'

restore({ args: process.argv.slice(2), env: process.env, print: console.log }).catch((error) => {
  console.error(describeFailure(error))
  // An interrupted restore may still be waiting for the place of the backup.
  process.exit(1)
})
