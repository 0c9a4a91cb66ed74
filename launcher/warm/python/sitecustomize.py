# SPDX-License-Identifier: Apache-2.0
"""Makes a Python interpreter that ctrun has started as a spare import what the program imports, and wait.

ctrun puts the folder of this file in front of PYTHONPATH, so that the interpreter runs it at its start, in
place of the user's own sitecustomize, and before it opens the program. When this file is done, the interpreter
goes on as always: it reads the program and runs it. So nothing here imitates how Python runs a program.
docs/WARM.md describes the messages on the socket; Python 3.8 is enough, and nothing but the standard library
is used. A plan (what to import) is made in a process of its own, so that a spare holds no module that only
the plan needs.
"""

import os
import sys

VERSION = "1"
VARIABLE = "CTRUN_WARM"
MESSAGE_MAX = 65536  # bytes, as in launcher/warm/spare.h
PLAN_MAX = 60000
FILES_MAX = 200  # of the job's own, that a plan reads
NOT_THERE = (0, 0, 0)  # in place of the stamp of a file
ASIDE = 63  # the last descriptor of a small table: what imports open gets the numbers of a cold start

# The variables that may differ between what a spare was started with and what it is to be as a worker. The
# build puts the names here; worker/job/late_variables.h has them.
LATE = set("@LATE_VARIABLES@".split())


class Refusal(Exception):
    """Why this process cannot become a worker."""


# ---- the plan: what the program imports first ----------------------------------------------------------------


class Plan:
    """Reads the program, and the job's own modules that it imports, without running any of them."""

    LIBRARY, OWN, LOADED, MISSING = range(4)  # what a module is

    # A statement that mentions one of these may change what a later import finds or does.
    CHANGERS = {"putenv", "unsetenv", "load_dotenv", "addsitedir", "import_module", "chdir"}
    BUILTINS = {"exec", "eval", "__import__"}  # and not the method eval() of a model
    # So may one that does more than to read these, by a subscript or one of the methods.
    OF_OS = {"environ", "environb"}
    OF_SYS = {"path", "modules", "meta_path", "path_hooks"}
    READERS = {"get", "copy", "items", "keys", "values"}
    # What a package imports only when it is used, if the program has this word: most of the time to the first
    # step of PyTorch's optimizers and of DistributedDataParallel is this import.
    LATER = {"torch": (b"optim", "torch._dynamo")}

    def __init__(self, folder, module):
        import ast
        import importlib.util
        import sysconfig

        self.ast = ast
        self.util = importlib.util
        self.folder = folder  # sys.path[0] of the program; None = it has none
        self.programs = ("__main__", module, module + ".__main__")  # names, of which the program has one
        self.imports = []
        self.missing = []  # modules that the program looks for in vain
        self.mark = ""  # of the imports that are being read, as in import_all()
        self.changers = set(self.CHANGERS)  # and the job's own functions and classes that use one
        self.own = {}  # the words of the other ones
        self.files = {}
        self.words = set()  # of LATER that the files have
        paths = sysconfig.get_paths()
        alias = [ast.TypeAlias] if hasattr(ast, "TypeAlias") else []  # Python 3.12
        self.harmless = (ast.Pass, *alias)
        self.libraries = [os.path.realpath(paths[name]) for name in ("stdlib", "platstdlib", "purelib", "platlib")]

    def is_library(self, origin):
        if origin in (None, "built-in", "frozen"):
            return origin is not None
        real = os.path.realpath(origin)
        inside = any(real.startswith(library + os.sep) for library in self.libraries)
        return inside or os.sep + "site-packages" + os.sep in real or os.sep + "dist-packages" + os.sep in real

    def locate(self, top):
        """(what the module is, file of the job's own; None = it has none)"""
        from importlib.machinery import PathFinder

        spec = PathFinder.find_spec(top, [self.folder]) if self.folder else None
        own = spec is not None
        if spec is None or spec.loader is None:  # any other module comes before a folder without __init__.py
            try:
                other = self.util.find_spec(top)
            except (ImportError, ValueError):  # it is loaded, as __main__ is
                return self.LOADED, None
            if other is not None and (spec is None or other.loader is not None):
                spec, own = other, False
        if spec is None:
            return self.MISSING, None
        # A package without __init__.py has only folders.
        places = [spec.origin] if spec.origin else list(spec.submodule_search_locations or [None])
        if not own and all(map(self.is_library, places)):
            return self.LIBRARY, None
        return self.OWN, spec.origin

    def own_files(self, origin, parts):
        """The files that `import a.b.c` runs, given that of `a`, and whether the last one is a package."""
        files = [origin]
        for part in parts:
            folder = os.path.dirname(files[-1])
            if os.path.basename(files[-1]) != "__init__.py":
                break
            package = os.path.join(folder, part, "__init__.py")
            module = os.path.join(folder, part + ".py")
            if os.path.isfile(package):
                files.append(package)
            elif os.path.isfile(module):
                files.append(module)
            else:
                break
        return files

    def take(self, name, attributes):
        parts = name.split(".")
        kind, origin = self.locate(parts[0])
        if kind == self.LIBRARY:
            self.imports.append(self.mark + name + (":" + ",".join(attributes) if attributes else ""))
        elif origin and origin.endswith(".py"):
            self.follow(origin, parts, attributes)
        elif kind == self.MISSING:
            self.missing.append(parts[0])
            if self.mark == "!":
                raise StopIteration  # the handler is executed
        elif kind == self.OWN:
            raise StopIteration  # it cannot be read: it is compiled, or is a folder without __init__.py

    def follow(self, origin, parts, attributes):
        files = self.own_files(origin, parts[1:])
        for depth, file in enumerate(files):
            self.read(file, ".".join(parts[: depth + 1]))
        if len(files) < len(parts):
            self.fail(os.path.join(os.path.dirname(files[-1]), parts[len(files)]))
        if os.path.basename(files[-1]) == "__init__.py" and len(files) == len(parts):
            for attribute in attributes:
                for file in self.own_files(files[-1], [attribute])[1:]:
                    self.read(file, ".".join([*parts, attribute]))

    def fail(self, place):
        """Neither `place`.py nor the package `place` can be read. If they come, the import does something else."""
        for path in (place + ".py", os.path.join(place, "__init__.py")):
            self.files[path] = stamp(path)
        folder, name = os.path.split(place)
        if self.mark == "!" or any(file.partition(".")[0] == name for file in os.listdir(folder)):
            raise StopIteration  # the handler is executed, or it is there: compiled, or a folder

    def changes(self, node):
        """May the statement change how later imports behave? It may if it is executed for its effect."""
        ast = self.ast
        if isinstance(node, self.harmless):
            return False
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            return self.imports_own(node)
        if isinstance(node, ast.Expr):
            return not isinstance(node.value, ast.Constant)
        if isinstance(node, ast.If):
            body = [] if self.word(node.test) == "TYPE_CHECKING" else node.body  # is false when the program runs
            return self.mentions([node.test]) or any(self.changes(inner) for inner in [*body, *node.orelse])
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            defaults = [*node.args.defaults, *filter(None, node.args.kw_defaults)]
            return self.mentions([*node.decorator_list, *defaults])
        if isinstance(node, (ast.Assign, ast.AnnAssign, ast.AugAssign)):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            return not all(isinstance(target, (ast.Name, ast.Tuple)) for target in targets) or self.mentions([node])
        if isinstance(node, ast.ClassDef):
            made_of = [*node.decorator_list, *node.bases, *(keyword.value for keyword in node.keywords)]
            return self.mentions(made_of) or any(self.changes(inner) for inner in node.body)
        return True

    def imports_own(self, node):
        """Does the import, which may be executed or not, run a module of the job's own? That may do anything."""
        if getattr(node, "level", 0) > 0:
            return True
        names = [node.module] if isinstance(node, self.ast.ImportFrom) else [alias.name for alias in node.names]
        return any(self.locate(name.partition(".")[0])[0] == self.OWN for name in names)

    def mentions(self, nodes):
        """Do the nodes have a word of `changers`, or do more with the environment or `sys` than to read them?"""
        ast = self.ast
        for top in nodes:
            read = set()  # parents come before their children
            for node in ast.walk(top):
                word = self.word(node)
                if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Load):
                    read.add(id(node.value))
                elif isinstance(node, ast.Attribute) and word in self.READERS:
                    read.add(id(node.value))
                elif isinstance(node, ast.Compare):
                    read.update(map(id, node.comparators))
                if word in self.changers or getattr(node, "id", None) in self.BUILTINS:
                    return True
                if id(node) not in read and (word in self.OF_OS or self.is_of_sys(node)):
                    return True
        return False

    @staticmethod
    def word(node):
        return getattr(node, "id", None) or getattr(node, "attr", None)

    def is_of_sys(self, node):
        return getattr(node, "attr", None) in self.OF_SYS and getattr(node.value, "id", None) == "sys"

    def learn(self, tree):
        """Notes which of the job's own functions and classes may change how later imports behave: `X = f()` runs
        them. Those of all files that have been read may use each other."""
        ast = self.ast
        statements = list(tree.body)
        for node in statements:
            if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
                for part in ("body", "orelse", "handlers", "finalbody"):
                    statements.extend(getattr(node, part, []))
            elif self.mentions(node.body):
                self.changers.add(node.name)
            else:
                words = {self.word(inner) for top in node.body for inner in ast.walk(top)}
                self.own.setdefault(node.name, set()).update(words)
        grown = True
        while grown:
            grown = {name for name, words in self.own.items() if not words.isdisjoint(self.changers)} - self.changers
            self.changers |= grown

    def is_guard(self, node):
        """if __name__ == "__main__": or with more behind an `and`. When the file is imported, its `else` is executed."""
        ast = self.ast
        test = getattr(node, "test", None)
        if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And):
            test = test.values[0]
        if not isinstance(node, ast.If) or not isinstance(test, ast.Compare) or not isinstance(test.ops[0], ast.Eq):
            return False
        sides = [getattr(side, "id", getattr(side, "value", None)) for side in (test.left, *test.comparators)]
        return sides in (["__name__", "__main__"], ["__main__", "__name__"])

    def read(self, file, module):
        file = os.path.abspath(file)
        if file in self.files:
            return
        if len(self.files) >= FILES_MAX:
            raise StopIteration
        self.files[file] = stamp(file)
        with open(file, "rb") as opened:
            source = opened.read()
        tree = self.ast.parse(source, file)
        self.words.update(word for word, _ in self.LATER.values() if word in source)
        self.learn(tree)
        is_package = os.path.basename(file) == "__init__.py"
        package = module if is_package else module.rpartition(".")[0]
        self.statements(tree.body, package, module in self.programs and not is_package)

    def statements(self, body, package, is_program):
        ast = self.ast
        for node in body:
            if getattr(node, "is_lazy", 0):  # Python 3.15: the program itself imports it at its first use
                continue
            if isinstance(node, ast.Import):
                for alias in node.names:
                    self.take(alias.name, [])
            elif isinstance(node, ast.ImportFrom):
                self.take_from(node, package)
                self.changers.update(alias.asname for alias in node.names if alias.asname and alias.name in self.changers)
            elif isinstance(node, ast.Try):
                self.tries(node, package, is_program)
            elif self.is_guard(node) and not is_program:
                self.statements(node.orelse, package, is_program)
            elif self.changes(node):
                raise StopIteration  # ends the whole plan: what comes later in the program comes after it

    def tries(self, node, package, is_program):
        """Imports in `try` may fail. What a handler then does may change what comes later."""
        before = self.mark
        handled = [inner for handler in node.handlers for inner in handler.body]
        self.mark = "!" if before == "!" or any(self.changes(inner) for inner in handled) else "?"
        self.statements(node.body, package, is_program)
        self.mark = before
        if any(self.changes(inner) for inner in [*node.orelse, *node.finalbody]):
            raise StopIteration

    def take_from(self, node, package):
        attributes = [alias.name for alias in node.names if alias.name != "*"]
        if node.level == 0:
            if node.module != "__future__":
                self.take(node.module, attributes)
            return
        base = package.split(".") if package else []
        base = base[: len(base) - node.level + 1]
        if base:
            self.take(".".join(base + ([node.module] if node.module else [])), attributes)

    def text(self):
        """A line for each import, for each module that is missing, and for each file with its stamp."""
        tops = {line.lstrip("?!").partition(":")[0].partition(".")[0] for line in self.imports}
        later = ["?" + name for top, (word, name) in self.LATER.items() if top in tops and word in self.words]
        lines = ["i " + line for line in dict.fromkeys(self.imports + later)]
        lines += ["m " + name for name in dict.fromkeys(self.missing)]
        lines += ["f %d %d %d %s" % (*stamped, escape(file)) for file, stamped in self.files.items()]
        return "\n".join(lines)


def escape(path):
    """A path may have line breaks."""
    return path.replace("\\", "\\\\").replace("\n", "\\n")


def unescape(text):
    """Without a codec, which would be one more module in the spare."""
    return "\\".join(part.replace("\\n", "\n") for part in text.split("\\\\"))


def stamp(path):
    """What changes when a file is replaced or written."""
    try:
        found = os.stat(path)
    except OSError:
        return NOT_THERE
    return (found.st_mtime_ns, found.st_size, found.st_ino)


def placed(path):
    """When the file got its name or its text."""
    try:
        return os.stat(path).st_ctime_ns
    except OSError:
        return 0


def program_folder(kind, program):
    """sys.path[0] of the program."""
    if getattr(sys.flags, "safe_path", False):
        return None
    return os.getcwd() if kind == "module" else os.path.dirname(os.path.realpath(program))


def make_plan(kind, program, names):
    folder = program_folder(kind, program)
    plan = Plan(folder, program if kind == "module" else "")
    try:
        if names:
            plan.imports = names.split(",")
        elif kind == "file":
            plan.read(program, "__main__")
        else:
            found, origin = plan.locate(program.split(".")[0])
            if found == plan.LIBRARY:
                if "." in program:
                    plan.imports.append("?" + program.rpartition(".")[0])
            elif origin and origin.endswith(".py"):
                plan.follow(origin, program.split("."), ["__main__"])
    except StopIteration:
        pass
    except (OSError, SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise Refusal("its imports cannot be read: %s" % error)
    text = plan.text()
    try:
        size = len(os.fsencode(text))
    except ValueError as error:
        raise Refusal("its imports cannot be told: %s" % error)
    if size > PLAN_MAX:
        raise Refusal("its list of imports is too long")
    return text


# ---- the spare -----------------------------------------------------------------------------------------------


class Missed:
    """Stands last in sys.meta_path and notes which modules imports have looked for in vain. The program's folder is
    not in sys.path yet, and may have them. Those that the program itself looked for in vain come from the plan."""

    def __init__(self):
        self.names = set()

    def find_spec(self, name, path=None, target=None):
        if path is None:
            self.names.add(name)


class Spare:
    def __init__(self, channel, descriptor):
        self.channel = channel
        self.descriptor = descriptor
        self.given = {}  # the environment with which ctrun has started this process
        self.seen = set()  # variables that imports have read or written
        self.missed = Missed()
        self.streams = [identity(stream) for stream in range(3)]
        self.site = find_site()
        self.environ_class = type(os.environ)
        self.files = {}
        self.places = set()
        self.site_modules = set(sys.modules)
        self.command = own_command()
        self.cwd = os.getcwd()

    def record(self):
        seen = self.seen

        class Recorder(self.environ_class):
            # The keys of os.environb are bytes.
            def __getitem__(self, key):
                seen.add(os.fsdecode(key))
                return super().__getitem__(key)

            def __setitem__(self, key, value):
                seen.add(os.fsdecode(key))
                super().__setitem__(key, value)

            def __delitem__(self, key):
                seen.add(os.fsdecode(key))
                super().__delitem__(key)

        os.environ.__class__ = os.environb.__class__ = Recorder

    def stop_recording(self):
        os.environ.__class__ = os.environb.__class__ = self.environ_class
        sys.meta_path[:] = [finder for finder in sys.meta_path if finder is not self.missed]

    def import_all(self, text):
        sys.meta_path.append(self.missed)
        self.plan = text.split("\n") if text else []
        self.missed.names.update(line[2:] for line in self.plan if line.startswith("m "))
        for line in self.plan:
            if not line.startswith("i "):
                continue
            mark = line[2:3] if line[2:3] in ("?", "!") else ""
            name, _, attributes = line[2 + len(mark) :].partition(":")
            try:
                # As the statement does it: what is no attribute of a package may be a module in it.
                __import__(name, {}, {}, attributes.split(",") if attributes else [], 0)
            except ImportError as error:
                if mark == "!":
                    break  # the program does something about it before it imports the rest
                if mark == "":
                    raise Refusal("import %s: %s" % (name, error))
            except BaseException as error:
                raise Refusal("import %s: %s: %s" % (name, type(error).__name__, error))

    def check_process(self):
        import _thread

        # GPUs, Gaudi, Trainium, Ascend, and TPUs.
        accelerators = tuple("/dev/" + name for name in "nvidia kfd dri accel neuron davinci vfio/".split())
        threading = sys.modules.get("threading")
        if threading is not None and threading.active_count() > 1:
            raise Refusal("an import has started the thread %s" % threading.enumerate()[-1].name)
        if _thread._count() > 0:  # these threads are unknown to threading
            raise Refusal("an import has started a thread")
        try:
            os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            raise Refusal("an import has started a process")
        except ChildProcessError:
            if in_own_session():  # its parent has ended
                raise Refusal("an import has started a process")
        for stream in range(3):
            if identity(stream) != self.streams[stream]:
                raise Refusal("an import has closed or replaced descriptor %d" % stream)
        if os.getcwd() != self.cwd:
            raise Refusal("an import has changed the working directory")
        for name in os.listdir("/proc/self/fd"):
            try:
                target = os.readlink("/proc/self/fd/" + name)
            except OSError:
                continue
            if int(name) > 2 and int(name) != self.descriptor and target.startswith("socket:"):
                raise Refusal("an import has opened a socket")
            if target.startswith(accelerators):
                raise Refusal("an import uses an accelerator (%s)" % target)

    def note_files(self, began):
        modules = {file_of(module) for module in list(sys.modules.values())}
        for path in {*map(archive_or_file, modules - {None}), *mapped_files()}:
            self.files[path] = stamp(path)
            # Package managers give a file the time that it has in the package.
            if self.files[path][0] > began or placed(path) > began:
                raise Refusal("%s has changed meanwhile" % path)
        self.places = self.find_places()

    def find_places(self):
        """(folder of sys.path, file in it) of each file named as a module that was imported, or was not found."""
        places = set()
        for folder in sys.path:
            try:
                files = os.listdir(folder or ".")
            except OSError:  # it is not there, or is an archive
                continue
            for file in files:
                name = file.partition(".")[0]
                if name in sys.modules or name in self.missed.names:
                    places.add((folder, file))
        return places

    def check_files(self, kind, program):
        for path, stamped in self.files.items():
            if stamp(path) != stamped:
                raise Refusal("%s has changed" % path)
        for line in self.plan:
            if line.startswith("f "):
                mtime, size, inode, path = line[2:].split(" ", 3)
                path = unescape(path)
                if stamp(path) != (int(mtime), int(size), int(inode)):
                    raise Refusal("%s has changed" % path)
        for path, _ in sorted(self.site.symmetric_difference(find_site())):
            raise Refusal("%s has changed, and sys.path perhaps with it" % path)
        folder = program_folder(kind, program)
        if folder is not None:
            try:
                names = {name.partition(".")[0] for name in os.listdir(folder)}
            except OSError as error:
                raise Refusal("%s: %s" % (folder, error.strerror))
            for name in names.intersection(sys.modules).difference(self.site_modules):
                if os.path.dirname(file_of(sys.modules[name]) or "") != folder:
                    spec = self.find(name, folder)
                    if spec is not None and spec.loader is not None:
                        raise Refusal("%s in %s would be imported instead of the installed one" % (name, folder))
            for name in names.intersection(self.missed.names):
                if self.find(name, folder) is not None:
                    raise Refusal("%s in %s would be found, which an import has missed" % (name, folder))
        for folder, file in sorted(self.find_places() - self.places):
            name = file.partition(".")[0]
            spec = self.find(name, folder)
            if spec is not None and (spec.loader is not None or name in self.missed.names):
                raise Refusal("%s in %s would be imported now" % (name, folder))

    @staticmethod
    def find(name, folder):
        for hook in sys.path_hooks:
            try:
                return hook(folder).find_spec(name)
            except ImportError:
                continue
        return None

    def check_environment(self, new):
        """Returns the variables to set, and those to remove."""
        changed = {name: value for name, value in new.items() if self.given.get(name) != value}
        removed = [name for name in self.given if name not in new]
        for name in [*changed, *removed]:
            if name not in LATE:
                raise Refusal("%s is another one now" % name)
            if name in self.seen:
                raise Refusal("an import has used %s, which is another one now" % name)
        return changed, removed

    def check_room(self):
        """The kernel leaves descriptors out of a message when this process may have no more."""
        copies = []
        try:
            for _ in range(3):
                copies.append(os.dup(self.descriptor))
        except OSError as error:
            raise Refusal("it cannot take over its streams: %s" % error.strerror)
        finally:
            for copy in copies:
                os.close(copy)

    def receive(self, word, count):
        """The fields after this word, and this many descriptors."""
        import _socket

        data, control, _, _ = self.channel.recvmsg(MESSAGE_MAX, 256)
        if not data:
            os._exit(1)  # ctrun is gone, or this process is not the one that it has started, and no worker either
        descriptors = []
        for level, kind, content in control:
            if level == _socket.SOL_SOCKET and kind == _socket.SCM_RIGHTS:
                for at in range(0, len(content) - 3, 4):
                    descriptors.append(int.from_bytes(content[at : at + 4], sys.byteorder))
        found, *fields = os.fsdecode(data).split("\0")
        if found != word:
            raise Refusal("unknown message %s" % found)
        if len(descriptors) != count:
            raise Refusal("it may have no more descriptors")
        return fields, descriptors

    def say(self, *fields):
        self.channel.send(os.fsencode("\0".join(fields)))

    def get_ready(self):
        """Imports what ctrun names. Returns the error of the user's own sitecustomize."""
        began = int(__import__("time").time() * 1e9)
        (plan,), (environment,) = self.receive("import", 1)
        self.given = read_environment(environment)
        if os.environ["PYTHONPATH"] == "" and "PYTHONPATH" not in self.given:
            del os.environ["PYTHONPATH"]
        self.record()
        error = run_users()
        self.import_all(plan)
        self.check_process()
        self.note_files(began)
        self.say("ready", str(len(sys.modules)))
        return error

    def become(self):
        (kind, program), (environment,) = self.receive("go", 1)
        if self.command != (("-m", program) if kind == "module" else (program, "")):
            raise Refusal("the command runs Python for another program first")  # which would have become the worker
        self.check_files(kind, program)
        changed, removed = self.check_environment(read_environment(environment))
        self.check_room()
        self.stop_recording()
        for name, value in changed.items():
            os.environ[name] = value
        for name in removed:
            del os.environ[name]
        forget_importers()
        self.say("set")
        _, descriptors = self.receive("start", 3)
        for target, descriptor in enumerate(descriptors):
            os.dup2(descriptor, target)
            os.close(descriptor)


def own_command():
    """(sys.argv[0] as it is before the program is opened, name of the module that is to be run)"""
    with open("/proc/self/cmdline", "rb") as file:
        words = os.fsdecode(file.read()).split("\0")
    first = sys.argv[0] if sys.argv else ""
    return first, words[words.index("-m") + 1] if first == "-m" else ""


def identity(descriptor):
    try:
        found = os.fstat(descriptor)
    except OSError:
        return None
    return (found.st_dev, found.st_ino)


def file_of(module):
    """The module's __file__. One that is loaded at its first use (importlib.util.LazyLoader) must not notice."""
    try:
        path = object.__getattribute__(module, "__dict__").get("__file__")
    except Exception:  # anything can be in sys.modules
        return None
    return path if isinstance(path, str) else None


def archive_or_file(path):
    """The file of a module, or the archive that has it: archive.zip of archive.zip/package/module.py."""
    found = path
    while stamp(found) == NOT_THERE and os.path.dirname(found) != found:
        found = os.path.dirname(found)
    return found if os.path.isfile(found) else path


def find_site():
    """(path, stamp) of what decides about sys.path at the start of an interpreter: the folders for packages that are
    there, the files in them that name other folders (`pip install -e`), and the settings of a virtual environment."""
    import site

    settings = os.path.join(sys.prefix, "pyvenv.cfg")
    found = {(settings, stamp(settings))}
    users = [site.USER_SITE] if site.ENABLE_USER_SITE else []
    for folder in [*site.getsitepackages(), *users]:
        try:
            names = os.listdir(folder)
        except OSError:  # it is not there
            continue
        found.add((folder, ()))  # whatever else is in it
        links = [os.path.join(folder, name) for name in names if name.endswith(".pth")]
        found.update((link, stamp(link)) for link in links)
    return found


def mapped_files():
    """The files whose code this process executes: the interpreter and libraries."""
    found = set()
    with open("/proc/self/maps", "rb") as maps:
        for line in maps:
            fields = line.rstrip(b"\n").split(None, 5)
            if len(fields) == 6 and b"x" in fields[1] and fields[5].startswith(b"/"):
                path = fields[5]
                # One that was replaced meanwhile counts as changed, because another file has its name.
                found.add(os.fsdecode(path[: -len(b" (deleted)")] if path.endswith(b" (deleted)") else path))
    return found


def in_own_session():
    """Is another process in the session of this one? A wrapper around the interpreter has a session of its own, in
    which there may be others."""
    if os.getsid(0) != os.getpid():
        return False
    for name in os.listdir("/proc"):
        try:
            if name.isdigit() and int(name) != os.getpid() and os.getsid(int(name)) == os.getpid():
                return True
        except OSError:  # it has ended
            continue
    return False


def forget_importers():
    """Makes the next import see what is in the folders of sys.path now. None stands for a folder that was not there."""
    for folder, importer in list(sys.path_importer_cache.items()):
        if hasattr(importer, "invalidate_caches"):
            importer.invalidate_caches()
        elif importer is None and os.path.exists(folder):
            del sys.path_importer_cache[folder]


def put_aside(descriptor):
    """Moves the socket away from the lowest numbers. Returns its descriptor."""
    try:
        os.fstat(ASIDE)
    except OSError:  # it is free
        try:
            os.dup2(descriptor, ASIDE, inheritable=False)
        except OSError:  # more than there may be
            pass
        else:
            os.close(descriptor)
            return ASIDE
    os.set_inheritable(descriptor, False)
    return descriptor


def read_environment(descriptor):
    with open(descriptor, "rb") as block:
        entries = [os.fsdecode(entry).partition("=") for entry in block.read().split(b"\0") if entry]
    return {name: value for name, _, value in entries}


def strip():
    """Removes the traces of this file from the interpreter."""
    folder = os.path.dirname(os.path.abspath(__file__))
    sys.path[:] = [entry for entry in sys.path if entry != folder]
    sys.path_importer_cache.pop(folder, None)
    entries = os.environ["PYTHONPATH"].split(os.pathsep)
    for at, entry in enumerate(entries):
        if os.path.abspath(entry) == folder:  # the first, unless a wrapper around the interpreter has added some
            del entries[at]
            break
    os.environ["PYTHONPATH"] = os.pathsep.join(entries)  # in its old place; get_ready() knows whether it had any text
    version, descriptor, role = os.environ.pop(VARIABLE).split(":")
    return version, int(descriptor), role


def run_users():
    """Imports the user's own modules of this kind, which the interpreter would have imported. Returns the error
    of the first that the interpreter is to see."""
    import site

    error = None
    del sys.modules["sitecustomize"]
    try:
        import sitecustomize  # noqa: F401
    except BaseException as caught:  # also that there is none, which the interpreter ignores
        error = caught
    if site.ENABLE_USER_SITE and hasattr(site, "execusercustomize"):
        site.execusercustomize()
    return error


def main():
    """Returns the error of the user's own sitecustomize when this process is to become a worker. In every other
    case it ends the process: an interpreter that went on would run the program as nobody."""
    before = set(sys.modules)
    version, descriptor, role = strip()
    import _socket

    descriptor = put_aside(descriptor)
    channel = _socket.socket(fileno=descriptor)
    spare = Spare(channel, descriptor)
    try:
        if version != VERSION:
            raise Refusal("ctrun and its part in Python are of different versions")
        if sys.version_info < (3, 8):
            raise Refusal("Python %d.%d is older than 3.8" % sys.version_info[:2])
        if role == "plan":
            (kind, program, names), _ = spare.receive("plan", 0)
            spare.say("plan", make_plan(kind, program, names))
            os._exit(0)
        error = spare.get_ready()
        spare.become()
    except Exception as error:  # nearly always a Refusal
        said = str(error) if isinstance(error, Refusal) else "%s: %s" % (type(error).__name__, error)
        spare.say("no", " ".join(said.split())[:400])
        os._exit(1)  # not as a worker that has done its work
    channel.close()
    if "socket" not in sys.modules and "_socket" not in before:
        del sys.modules["_socket"]
    return error


if VARIABLE in os.environ:
    try:
        users_error = main()
    except BaseException:  # ctrun is gone, or this file is wrong
        os._exit(1)
    if users_error is not None:
        raise users_error
