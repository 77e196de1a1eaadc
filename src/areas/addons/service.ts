import type * as z from 'zod'
import type { ProjectAccess } from '../../auth/access.ts'
import type { Ctx } from '../../env.ts'
import { ApiError } from '../../http/error.ts'
import { type Addons, type ApplyAddon, TYPE_OF_VARIANT } from './schema.ts'

type Size = ProjectAccess['instanceSize']
type Selected = z.input<typeof Addons>['selected_addons']

const variantOf = (size: Size) => `ci_${size}`

const nameOf = (size: Size) => {
  const [plain = '', ...kind] = size.replace('xlarge', 'XL').split('_')
  return [plain, ...kind].map((word) => word.charAt(0).toUpperCase() + word.slice(1)).join(' ')
}

const FREE = { description: 'Free of charge', type: 'fixed', interval: 'monthly', amount: 0 } as const

const selectedOf = ({ instanceSize: size }: ProjectAccess): Selected =>
  TYPE_OF_VARIANT.has(variantOf(size))
    ? [{ type: 'compute_instance', variant: { id: variantOf(size), name: nameOf(size), price: FREE } }]
    : []

/** No driver can do what an add-on stands for, so beside a project's size there is none to be had. */
export const listAddons = (project: ProjectAccess): z.input<typeof Addons> => ({
  selected_addons: selectedOf(project),
  available_addons: [],
})

/** The size that a project has may be asked for again. */
export function applyAddon(
  { engine }: Ctx,
  project: ProjectAccess,
  { addon_variant: variant, addon_type: type }: z.output<typeof ApplyAddon>,
): void {
  if (variant === variantOf(project.instanceSize)) return
  if (type === 'compute_instance') throw refuse(cannotResize(engine, project))
  if (type === 'pitr') throw refuse(cannotKeep(engine))
  throw refuse(`this installation has no ${type === 'ipv4' ? 'IPv4 addresses for projects' : 'custom domains'}`)
}

export function removeAddon({ engine }: Ctx, project: ProjectAccess, variant: string): void {
  const selected = selectedOf(project).some((addon) => addon.variant.id === variant)
  if (!selected) throw new ApiError('not_found.addon', { detail: variant })
  throw refuse(cannotResize(engine, project))
}

const cannotKeep = ({ name, pointInTime }: Ctx['engine']) =>
  pointInTime
    ? `how much history there is, is set where the driver ${name} keeps it`
    : `the driver ${name} has no point-in-time recovery`

const cannotResize = ({ name }: Ctx['engine'], { instanceSize }: ProjectAccess) =>
  `the driver ${name} cannot change the size of a project, which is ${instanceSize}`

const refuse = (detail: string) => new ApiError('bad_request.addon', { detail })
