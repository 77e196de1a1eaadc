import type * as z from 'zod'
import type { ProjectAccess } from '../../../access/access.ts'
import type { Ctx } from '../../../ctx.ts'
import type { TaskInput } from '../../../model/tables/index.ts'
import { ApiError } from '../../../platform/http/error.ts'
import { requireNoReadingRun } from '../../branching/branches/parent-project.ts'
import { throwApiError } from '../../database/database/service.ts'
import { mutate } from '../../kernel/mutate.ts'
import { changeStatus, requireStatus } from '../projects/status.ts'
import { startTask } from '../projects/tasks.ts'
import { type Addons, type ApplyAddon, COMPUTE_SIZES, TYPE_OF_VARIANT } from './schema.ts'

type Size = ProjectAccess['instanceSize']
type Selected = z.input<typeof Addons>['selected_addons']

const variantOf = (size: Size) => `ci_${size}`

const nameOf = (size: Size) => {
  const [plain = '', ...kind] = size.replace('xlarge', 'XL').split('_')
  return [plain, ...kind].map((word) => word.charAt(0).toUpperCase() + word.slice(1)).join(' ')
}

const FREE = { description: 'Free of charge', type: 'fixed', interval: 'monthly', amount: 0 } as const

const toVariant = (size: Size) => ({ id: variantOf(size), name: nameOf(size), price: FREE })

const selectedOf = ({ instanceSize: size }: ProjectAccess): Selected =>
  TYPE_OF_VARIANT.has(variantOf(size)) ? [{ type: 'compute_instance', variant: toVariant(size) }] : []

/** Returns the compute sizes that the driver offers the project or, without one, any project, except the smallest. */
export async function offeredVariants({ sizes }: Ctx['engine'], ref?: string) {
  const offered = await sizes?.offered(ref).catch(throwApiError)
  return COMPUTE_SIZES.filter((size) => offered?.has(size)).map(toVariant)
}

/** Lists the add-ons. Compute sizes are the only ones available. */
export async function listAddons({ engine }: Ctx, project: ProjectAccess): Promise<z.input<typeof Addons>> {
  const variants = await offeredVariants(engine, project.ref)
  return {
    selected_addons: selectedOf(project),
    available_addons: variants.length === 0 ? [] : [{ type: 'compute_instance', name: 'Compute size', variants }],
  }
}

/** Applies an add-on. Applying the current size again does nothing. */
export async function applyAddon(
  ctx: Ctx,
  project: ProjectAccess,
  { addon_variant: variant, addon_type: type }: z.output<typeof ApplyAddon>,
): Promise<void> {
  if (variant === variantOf(project.instanceSize)) return
  const size = COMPUTE_SIZES.find((each) => variantOf(each) === variant)
  if (size) return startResize(ctx, project, size)
  if (type === 'pitr') throw addonError(pitrRefusal(ctx.engine))
  throw addonError(
    type === 'ipv4'
      ? 'this installation has no IPv4 addresses for projects'
      : 'custom hostnames need no add-on on this installation',
  )
}

/** Removes an add-on; a project without a compute size add-on has the smallest size. */
export async function removeAddon(ctx: Ctx, project: ProjectAccess, variant: string): Promise<void> {
  const selected = selectedOf(project).some((addon) => addon.variant.id === variant)
  if (!selected) throw new ApiError('not_found.addon', { detail: variant })
  await startResize(ctx, project, 'nano')
}

async function startResize(ctx: Ctx, project: ProjectAccess, size: NonNullable<TaskInput['size']>): Promise<void> {
  const { engine } = ctx
  if (!engine.sizes) throw addonError(resizeRefusal(engine, project))
  const { ref, organizationId } = project
  const offered = await engine.sizes.offered(ref).catch(throwApiError)
  if (!offered.has(size)) throw addonError(`the driver ${engine.name} has no size ${size}`)
  await mutate(ctx, async (mutation) => {
    const before = await requireStatus(mutation, ref)
    await requireNoReadingRun(mutation, ref)
    await changeStatus(mutation, project, { before, status: 'RESIZING' })
    await startTask(ctx, mutation, { ref, kind: 'resize', input: { size } })
    const detail = { from: project.instanceSize, to: size }
    await mutation.trace({ action: 'project.resize', organizationId, projectRef: ref, detail })
  })
}

const pitrRefusal = ({ name, pointInTime }: Ctx['engine']) =>
  pointInTime
    ? `the driver ${name} sets how far back a project can be restored`
    : `the driver ${name} has no point-in-time recovery`

const resizeRefusal = ({ name }: Ctx['engine'], { instanceSize }: ProjectAccess) =>
  `the driver ${name} cannot change the size of a project; this project is ${instanceSize}`

const addonError = (detail: string) => new ApiError('bad_request.addon', { detail })
