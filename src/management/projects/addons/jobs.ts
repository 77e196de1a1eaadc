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
    // The server may have restarted and not answered since; `recoverProjects` reports the project as healthy once it answers.
    failed: () => ({ status: 'ACTIVE_UNHEALTHY' }),
  },
} satisfies Partial<Jobs>
