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
    steps: [resize],
    done: { status: 'ACTIVE_HEALTHY' },
    // The project keeps running at its current size.
    failed: () => ({ status: 'ACTIVE_HEALTHY' }),
  },
} satisfies Partial<Jobs>
