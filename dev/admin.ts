import './import-drizzle.ts'

await import('./admin/run-command.ts')
