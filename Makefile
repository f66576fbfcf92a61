# make demo | demo-mqtt | docs | docs-serve | test | long | test-long | test-portable | test-engines | test-browser | test-docs | test-lowest | package | lint | format | bench |
# reproduce | equal-slots | random-settings | attacks | clean; everything goes into .venv, nothing else is needed but Python 3.11 or later.

PYTHON ?= python3
BIN := .venv/bin
DEMO := out/demo
SITE := out/site

.PHONY: demo demo-mqtt docs docs-serve test long test-long test-portable test-engines test-browser test-docs test-lowest package mosquitto chromium lint format bench reproduce equal-slots random-settings attacks clean

# devices that train for two epochs, 50 labelled samples at the PS, and as many slots as 60 frames of full length
demo: .venv/ready
	rm -rf $(DEMO)
	$(BIN)/fedslot compare quickstart --seeds 5 --strategies merit-push+filtered,greedy-shap,push-pull,fedavg,ps-alone \
	    -o training.epochs=2 -o training.lr=0.02 -o data.validation_samples=50 -o time_budget=660 -o rounds=660 --out $(DEMO)
	@echo "Open $(DEMO)/report.html in a browser."

# a broker, a parameter server and 20 devices that train over MQTT
demo-mqtt: .venv/mqtt mosquitto
	$(BIN)/python examples/mqtt/demo.py out/demo-mqtt

# the documentation site; no request to the network, neither now nor when it is read
docs: .venv/docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet
	@echo "Open $(SITE)/index.html in a browser."

docs-serve: .venv/docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs serve

# apart from those that need other programs or another environment
APART := --ignore tests/engines --ignore tests/browser --ignore tests/site --ignore tests/package
test: .venv/ready
	$(BIN)/pytest -n auto -m 'not long' $(APART)

# the tests that `make test` leaves out; LONG=tests/cli runs those of a folder only
LONG ?= tests
long: .venv/ready
	$(BIN)/pytest -n auto -m long $(APART) $(LONG)

# all that takes minutes: those tests, a second processor and many more drawn inputs
test-long: long
	$(MAKE) test-portable PROFILES=avx2
	FEDSLOT_FUZZ=500 $(BIN)/pytest -n auto tests/fuzz

# the tests that compute, as other processors would run them; numbers on pages are not compared, so pages are not among them
PROFILES ?= x86-64
COMPUTING := tests/access tests/planning tests/data/test_partition.py tests/learning tests/strategies tests/valuation \
    tests/test_docs.py tests/fleet tests/test_portable.py tests/rounds/test_simulation.py
test-portable: .venv/ready
	for profile in $(PROFILES); do \
	    (set -a && . tests/profiles/$$profile.env && $(BIN)/pytest -n auto -m 'not long' --hypothesis-profile few $(COMPUTING)) || exit 1; \
	done

# real Dask, Flower and MQTT processes on the loopback
test-engines: .venv/engines mosquitto
	$(BIN)/pytest -n 3 --dist loadfile tests/engines

# the live view and the documentation site in a real browser
test-browser: .venv/browser chromium docs
	$(BIN)/pytest -n 2 --dist loadfile tests/browser

# the documentation site: complete, and without requests to the network
test-docs: docs
	$(BIN)/pytest tests/site

# the tests with the lowest supported versions of the dependencies; the profiles name what the tested NumPy knows
test-lowest: .venv-lowest/ready
	CI=1 .venv-lowest/bin/pytest -n auto $(APART) --deselect tests/test_portable.py::test_a_profile_takes_effect

# source distribution and wheel in dist/, and the wheel tried in an empty environment
package: .venv/mqtt mosquitto
	rm -rf dist
	$(BIN)/python -m build
	$(BIN)/pytest tests/package

# minutes of computing; writes benchmarks/RESULTS.md. A table alone: python benchmarks/run.py --table 'Access alone'
bench: .venv/ready
	$(BIN)/python benchmarks/run.py

# hours of computing, resumable; then the page and its pictures go into docs/
reproduce: .venv/ready
	$(BIN)/fedslot data fetch mnist cifar10
	$(BIN)/fedslot reproduce all --seeds 5 --cifar-seeds 3 --curves docs/explanation/curves --out out/reproduction
	cp -r out/reproduction/reproduction.md out/reproduction/curves out/reproduction/images docs/explanation/
	rm docs/explanation/images/*/*.pdf

# hours of computing, resumable; then the pages, their pictures and curves go into docs/; SETTINGS="mnist-200 irsa" does these only
equal-slots: .venv/ready
	$(BIN)/fedslot data fetch mnist fashion-mnist cifar10
	$(BIN)/fedslot equal-slots $(SETTINGS) --curves docs/explanation/curves --out out/equal-slots
	cp -r out/equal-slots/equal-slots*.md out/equal-slots/curves out/equal-slots/images docs/explanation/
	rm docs/explanation/images/*/*.pdf

# an hour of computing, resumable; then the page and its curves go into docs/
random-settings: .venv/ready
	$(BIN)/fedslot data fetch mnist fashion-mnist
	$(BIN)/fedslot random-settings --curves docs/explanation/curves --out out/random-settings
	cp -r out/random-settings/random-settings.md out/random-settings/curves docs/explanation/

# an hour of computing, resumable; then the page and its curves go into docs/
attacks: .venv/ready
	$(BIN)/fedslot data fetch mnist fashion-mnist
	$(BIN)/fedslot attacks --curves docs/explanation/curves --out out/attacks
	cp -r out/attacks/attacks.md out/attacks/curves docs/explanation/

lint: .venv/engines
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: .venv/ready
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# the MQTT broker, by the system's packages; without root the tests that need it are skipped and say so
mosquitto:
	@PATH="$$PATH:/usr/sbin" command -v mosquitto > /dev/null || \
	    { [ "$$(id -u)" = 0 ] && command -v apt-get > /dev/null && apt-get install -y -qq mosquitto > /dev/null; } || \
	    echo "mosquitto is missing and cannot be installed here; as root: apt-get install mosquitto"

# a browser, by the system's packages; without root the tests that need it are skipped and say so
chromium:
	@command -v chromium > /dev/null || \
	    { [ "$$(id -u)" = 0 ] && command -v apt-get > /dev/null && apt-get install -y -qq chromium > /dev/null; } || \
	    echo "chromium is missing and cannot be installed here; as root: apt-get install chromium"

clean:
	rm -rf .venv .venv-lowest out build dist src/*.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis

.venv/ready: pyproject.toml constraints.txt
	@echo "Setting up .venv: a minute or two; pip shows how far it is."
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --disable-pip-version-check -c constraints.txt -e '.[dev]'
	touch $@

.venv/mqtt: .venv/ready
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev,mqtt]'
	touch $@

.venv/engines: .venv/ready
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev,dask,flower,mqtt,tensorboard,mlflow]'
	touch $@

.venv/docs: .venv/ready
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev,docs]'
	touch $@

.venv/browser: .venv/ready
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev,live,browser]'
	touch $@

.venv-lowest/ready: pyproject.toml constraints-lowest.txt
	$(PYTHON) -m venv .venv-lowest
	.venv-lowest/bin/python -m pip install --quiet --disable-pip-version-check -c constraints-lowest.txt -e '.[test]'
	touch $@
