import { EngineRefusal } from '../../../engine/engine-errors.ts'
import { checkHealth } from '../projects/jobs.ts'
import { type Jobs, PermanentError, type Step } from '../projects/tasks.ts'

const resize: Step = {
  name: 'resize',
  async run({ engine }, { project, task }, fence) {
    const { size } = task.input
    if (!engine.sizes || !size) throw new PermanentError(`the driver ${engine.name} has no sizes`)
    await engine.sizes.set(project.ref, size, fence)
    return { instanceSize: size }
  },
}

export const addonJobs = {
  resize: {
    steps: [resize, checkHealth],
    done: { status: 'ACTIVE_HEALTHY' },
    // A refusal changes nothing. Else the server may have restarted and not answered since: `recoverProjects` asks it again.
    failed: (_task, error) => ({ status: error instanceof EngineRefusal ? 'ACTIVE_HEALTHY' : 'ACTIVE_UNHEALTHY' }),
  },
} satisfies Partial<Jobs>
