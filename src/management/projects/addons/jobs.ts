import { EngineRefusal } from '../../../engine/engine-errors.ts'
import { SettingsRefused } from '../../../engine/settings.ts'
import { type Jobs, PermanentError, type Step } from '../projects/tasks.ts'

const resize: Step = {
  name: 'resize',
  async run({ engine }, { project, task }, fence) {
    const { size } = task.input
    if (!engine.sizes || !size) throw new PermanentError(`the driver ${engine.name} has no sizes`)
    await engine.sizes.set(project.ref, size, fence).catch((error) => {
      const isRefused = error instanceof EngineRefusal || error instanceof SettingsRefused
      throw isRefused ? new PermanentError(error.message, { cause: error }) : error
    })
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
