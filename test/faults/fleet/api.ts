import { guardChildren } from '../../../dev/guard-children.ts'
import { startWorker, type WorkerOptions } from '../../../dev/worker.ts'

/** Runs the API of an installation in a process of its own: `node api.ts <options of the Worker as JSON>`. */
guardChildren()
await startWorker(JSON.parse(process.argv[2] ?? '') as WorkerOptions)
console.log('ready')
